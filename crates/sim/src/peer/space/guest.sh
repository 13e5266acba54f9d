# Operations on datasets, and what `zfs` says of each, and of space after it: `golden.said` and `fresh.said` in $OUT.
# It runs in the oracle's virtual machine with OpenZFS, and by a test with the commands of ours. Its files: d0.img of the
# golden pool `snap`, golden.steps, fresh.steps, properties. D: where the devices are, M: where it is mounted.
export D=${D:-/dev/shm} M=${M:-/mnt/w}
table() {
  ask=$(tr '\n' , <"$FILES/properties")
  grep -v '^#' "$FILES/$1.steps" | while read -r step; do
    echo "# $step"; echo "$1: $step" >&2
    sh -c "$step" 2>&1 </dev/null; echo "status $?"
    # What is removed goes in the background, in groups of its own.
    zpool sync "$2"; sleep "${PAUSE:-0.3}"; zpool sync "$2"; zpool wait -t free "$2"; zpool sync "$2"
    zfs get -Hp -o name,property,value -t all -r "${ask%,}" "$2"
  done >"$OUT/$1.said"
}
if [ "${ONLY:-golden}" = golden ]; then
  mkdir "$D/space" && cp "$FILES/d0.img" "$D/space" && zpool import -N -f -o cachefile=none -R "$M" -d "$D/space" g_snap || exit 1
  table golden g_snap
  zpool export g_snap || exit 1
fi
if [ "${ONLY:-fresh}" = fresh ]; then
  truncate -s 512M "$D/fresh.img"
  zpool create -R "$M" -o ashift=12 -O atime=off -O compression=off fresh "$D/fresh.img" || exit 1
  table fresh fresh
  zpool export fresh || exit 1
fi
