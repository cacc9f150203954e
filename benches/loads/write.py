import os, sys
for entry in range(int(sys.argv[2])):
    descriptor = os.open("%s/%d" % (sys.argv[1], entry), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(descriptor, b"x" * 1024)
    os.close(descriptor)
