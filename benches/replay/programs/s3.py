import sys, boto3
from botocore.config import Config

keys = {"aws_access_key_id": "id", "aws_secret_access_key": "key"}
config = Config(s3={"addressing_style": "path"})
bucket = boto3.client("s3", endpoint_url=sys.argv[2], region_name="us-east-1", config=config, **keys)
print(bucket.put_object(Bucket="bucket", Key="key", Body=b"content" * 1000)["ResponseMetadata"]["HTTPHeaders"])
print(len(bucket.get_object(Bucket="bucket", Key="key")["Body"].read()))
bucket.delete_object(Bucket="bucket", Key="key")
try:
    bucket.get_object(Bucket="bucket", Key="key")
except bucket.exceptions.NoSuchKey as error:
    print(error)
