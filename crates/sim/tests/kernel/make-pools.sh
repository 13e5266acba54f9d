# Runs in the oracle's virtual machine: makes pools whose blocks no snapshot holds, so that what we free in them is freed.
# Each is NAME-dN.img in $OUT, and NAME.sums has the sha256 of each file below the pool's mount point.
set -e
cd /dev/shm
PARAMETERS=/sys/module/zfs/parameters

# Files that differ, in sizes from a part of a block to many blocks: directory, count, seed.
files() {
  python3 - "$@" <<'P'
import random, sys
directory, count, seed = sys.argv[1], int(sys.argv[2]), sys.argv[3]
r = random.Random(seed)
for i in range(count):
    open(f'{directory}/f{i}', 'wb').write(r.randbytes([100, 5000, 70000, 300000, 1000000][i % 5]))
P
}

# pool images create-arguments
begin() {
  for ((i = 0; i < $2; i++)); do truncate -s 256M "$1-d$i.img"; done
  zpool create -f -R /mnt/k "${@:3}"
}

end() {
  zpool sync "$1"
  (cd "/mnt/k/$1" && find . -type f | sort | xargs sha256sum) >"$OUT/$1.sums"
  zpool status -D "$1"
  zpool list -v "$1"
  zpool export "$1"
  for image in "$1"-d*.img; do [ "${2:-}" = first ] && [ "$image" != "$1-d0.img" ] || cp --sparse=always "$image" "$OUT/"; done
  rm "$1"-d*.img
}

# Two of three vdevs removed, one after the other: some addresses lead to the second one and on from there.
begin removed 3 removed /dev/shm/removed-d0.img /dev/shm/removed-d1.img /dev/shm/removed-d2.img
zfs create -o recordsize=16k removed/a
zfs create -o compression=off removed/b
for d in a b; do files /mnt/k/removed/$d 60 "$d"; done
zpool sync removed
for i in $(seq 0 7 59); do rm "/mnt/k/removed/a/f$i"; done
zpool sync removed
zpool remove removed /dev/shm/removed-d1.img
zpool wait -t remove removed
for i in 1 2 3; do head -c 200000 /dev/urandom >"/mnt/k/removed/a/late$i"; zpool sync removed; done
zpool remove removed /dev/shm/removed-d2.img
zpool wait -t remove removed
end removed first

# One of two vdevs removed, and what leads to its blocks written again, with snapshots about, before and after: they know blocks by the old addresses, what came after them by the new
# ones. A clone, a bookmark, and a snapshot that is destroyed here; blocks that die.
begin remapped 2 remapped /dev/shm/remapped-d0.img /dev/shm/remapped-d1.img
# What is written again in each file: dataset, seed.
again() {
  python3 - "$@" <<'P'
import os, random, sys
directory, seed = sys.argv[1], sys.argv[2]
r = random.Random(seed)
for name in sorted(os.listdir(directory)):
    size = os.path.getsize(f'{directory}/{name}')
    with open(f'{directory}/{name}', 'r+b') as file:
        for _ in range(3):
            file.seek(r.randrange(size))
            file.write(r.randbytes(100))
            os.fsync(file.fileno())
P
}
for d in a b; do
  zfs create -o recordsize=4k -o compression=off remapped/$d
  for s in 1 2 3; do
    mkdir -p /mnt/k/remapped/$d
    python3 -c "
import random
r = random.Random('$d$s')
for i in range(12): open('/mnt/k/remapped/$d/f$s-%d' % i, 'wb').write(r.randbytes([100, 70000, 300000, 900000][i % 4]))"
    [ $s = 1 ] || again /mnt/k/remapped/$d "$d$s"
    zpool sync remapped
    zfs snapshot remapped/$d@s$s
  done
done
zfs bookmark remapped/a@s2 remapped/a#s2
zfs clone remapped/b@s2 remapped/c
files /mnt/k/remapped/c 10 c
zpool sync remapped
zpool remove remapped /dev/shm/remapped-d1.img
zpool wait -t remove remapped
for s in 4 5 6; do
  for d in a b c; do again /mnt/k/remapped/$d "$d$s"; done
  zpool sync remapped
  [ $s = 6 ] || for d in a b c; do zfs snapshot remapped/$d@s$s; done
done
rm /mnt/k/remapped/a/f1-3 /mnt/k/remapped/b/f2-3 /mnt/k/remapped/c/f2-2
zpool sync remapped
zfs destroy remapped/a@s4
end remapped first

# Deduplication: the old tables, the new ones, the new ones with a log that nothing was flushed from.
for pool in ddtold ddtnew ddtlog; do
  options=()
  [ $pool = ddtold ] && options=(-o feature@fast_dedup=disabled)
  [ $pool = ddtlog ] && echo 0 >$PARAMETERS/zfs_dedup_log_flush_entries_max
  begin $pool 1 "${options[@]}" $pool /dev/shm/$pool-d0.img
  zfs create -o dedup=on -o recordsize=16k $pool/a
  zfs create -o dedup=sha512 -o compression=off $pool/b
  zfs create -o dedup=blake3,verify -o copies=2 $pool/c
  for d in a b c; do
    files /mnt/k/$pool/$d 20 "$d"
    zpool sync $pool
    mkdir /mnt/k/$pool/$d/again /mnt/k/$pool/$d/third
    cp /mnt/k/$pool/$d/f* /mnt/k/$pool/$d/again/
    cp /mnt/k/$pool/$d/f1* /mnt/k/$pool/$d/third/
  done
  zpool sync $pool
  [ $pool = ddtlog ] || for i in $(seq 40); do zpool sync $pool; done
  end $pool
done
echo 4294967295 >$PARAMETERS/zfs_dedup_log_flush_entries_max

# Snapshots that were destroyed while they had clones: first, between others, last, the only one; one that a clone has, one of two clones.
begin deferred 1 deferred /dev/shm/deferred-d0.img
for d in a b c d e; do
  zfs create -o recordsize=16k deferred/$d
  files /mnt/k/deferred/$d 20 "$d"
  for s in 1 2 3; do
    [ $d != e ] || [ $s = 2 ] || continue
    zpool sync deferred
    zfs snapshot deferred/$d@$s
    rm /mnt/k/deferred/$d/f$s /mnt/k/deferred/$d/f1$s
    head -c 300000 /dev/urandom >/mnt/k/deferred/$d/since$s
    [ $s != 3 ] || rm /mnt/k/deferred/$d/since1
  done
done
for from in a@1 b@2 c@3 d@2 e@2; do
  clone=c${from%@*}
  zfs clone deferred/$from deferred/$clone
  files /mnt/k/deferred/$clone 5 "$clone"
done
zfs set refreservation=20M deferred/c
zfs clone deferred/b@3 deferred/later
rm /mnt/k/deferred/later/f5
zfs clone deferred/d@2 deferred/twin
zfs snapshot deferred/ca@1
zfs clone deferred/ca@1 deferred/ofclone
rm /mnt/k/deferred/ca/f4 /mnt/k/deferred/ofclone/f5
zfs destroy -d deferred/ca@1
for from in a@1 b@2 c@3 d@2 e@2; do zfs destroy -d deferred/$from; done
end deferred

# Cloned blocks: the table with numbers, and the older one with bytes.
for pool in brtnew brtold; do
  options=()
  [ $pool = brtold ] && options=(-o feature@block_cloning_endian=disabled)
  begin $pool 2 "${options[@]}" $pool /dev/shm/$pool-d0.img /dev/shm/$pool-d1.img
  zfs create -o recordsize=16k $pool/a
  zfs create $pool/b
  for d in a b; do
    files /mnt/k/$pool/$d 20 "$d"
    zpool sync $pool
    mkdir /mnt/k/$pool/$d/again /mnt/k/$pool/$d/third
    for i in $(seq 0 19); do cp --reflink=always /mnt/k/$pool/$d/f$i /mnt/k/$pool/$d/again/; done
    for i in $(seq 10 19); do cp --reflink=always /mnt/k/$pool/$d/f$i /mnt/k/$pool/$d/third/; done
  done
  end $pool
done
