# Runs inside the oracle's virtual machine: each pool in $FILES/pools goes through the oracle's guest-import.
ALL=$FILES BACK=$OUT
mount -o remount,size=100% /dev/shm
for pool in "$ALL"/pools/*/; do
  name=$(basename "$pool")
  export FILES=${pool%/} OUT=$BACK/$name
  mkdir -p "$OUT"; cp "$ALL/manifest.py" "$FILES/"
  timeout 600 bash "$ALL/guest-import" >"$OUT/log" 2>&1
  echo $? >"$OUT/status"
  zpool export -a -f 2>&1
  echo "$name: $(cat "$OUT/status")"
done
