import sys, requests

plain, secure = sys.argv[1:]
with requests.Session() as session:
    for number in range(5):
        print(session.get(f"{secure}/page?{number}").text, end="")
    print(session.post(f"{plain}/echo", files={"file": ("name", b"content")}).json())
    answer = session.get(f"{secure}/nothing")
    print(answer.status_code, answer.headers["Date"])
