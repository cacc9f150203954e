import sys, boto3

bucket = boto3.client("s3", endpoint_url=sys.argv[2], region_name="us-east-1")
print(bucket.put_object(Bucket="bucket", Key="key", Body=b"content" * 1000)["ResponseMetadata"]["HTTPHeaders"])
print(len(bucket.get_object(Bucket="bucket", Key="key")["Body"].read()))
bucket.delete_object(Bucket="bucket", Key="key")
try:
    bucket.get_object(Bucket="bucket", Key="key")
except bucket.exceptions.NoSuchKey as error:
    print(error)
