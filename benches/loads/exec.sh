count=0
while [ "$count" -lt 1000 ]; do /usr/bin/true; count=$((count + 1)); done
