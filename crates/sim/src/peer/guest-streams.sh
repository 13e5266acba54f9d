# Runs inside the oracle's virtual machine: each line of $FILES/plan is a stream, the dataset of pool "recv" that it goes into, and flags.
mount -o remount,size=100% /dev/shm; truncate -s 6G /dev/shm/r.img; rc=0
zpool create -O compression=off -R /mnt/w recv /dev/shm/r.img || exit 1
while read -r stream dataset flags; do
  wanted=0; case $flags in *!*) wanted=1; flags=${flags//!/};; esac
  zfs receive -u $flags "recv/$dataset" <"$FILES/streams/$stream" >"$OUT/said" 2>&1; code=$?
  if [ "$((code != 0))" != "$wanted" ]; then echo "WRONG $stream: $code: $(tr '\n' ' ' <"$OUT/said")"; rc=1; else echo "received $stream"; fi
done <"$FILES/plan"
# What lacks blocks is not compared; the clone that got them back is, and goes on without its origin.
zfs promote recv/unredacted && zfs destroy recv/redacted && zfs destroy recv/unredacted@b || { echo "WRONG redacted"; rc=1; }
zpool scrub -w recv; zpool status -v recv | grep -q 'No known data errors' || { zpool status -v recv; echo "WRONG scrub"; rc=1; }
zfs get -Hpr -s received -t filesystem,snapshot -o name,property,value all recv >"$OUT/properties" || rc=1
zfs list -Ho name -t snapshot -r recv | xargs zfs holds -H | cut -f1,2 >"$OUT/holds"
zfs unmount -a
python3 "$FILES/manifest.py" recv recv "$OUT/manifest.json" || { echo "WRONG manifest"; rc=1; }
dmesg | grep -E 'PANIC|VERIFY|BUG:' && rc=1
echo "$rc" >"$OUT/status"
exit $rc
