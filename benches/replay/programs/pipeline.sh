# Pipelines, jobs in the background, waits, temporary files.
slow() { sleep 0.$1; echo "job $1 at $(date +%s.%N)" >>"out/job$1"; }
for job in 1 2 3; do slow $job & done
seq 1 1000 | sort -r | grep 7 | wc -l &
wait
cat out/job*
printf '%s\n' b a c | sort | tee out/sorted | tr a-z A-Z
temporary=$(mktemp) && echo "$temporary" && date >"$temporary" && cat "$temporary"
(exit 3); echo "status $? of $$"
timeout 1 sleep 100; echo "status $?"
head -c 8 /dev/urandom | od -An -tx1
exit 5
