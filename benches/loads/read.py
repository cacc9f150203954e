import os, sys
for entry in range(int(sys.argv[2])):
    descriptor = os.open("%s/%d" % (sys.argv[1], entry), os.O_RDONLY)
    os.read(descriptor, 65536)
    os.close(descriptor)
