//! Room: what was just freed, and what is reserved.
//!
//! What was freed counts as used until the group that freed it is on disk, five seconds later. Writers were told meanwhile that the quota is exceeded, or
//! the pool full, though `rm` had made room: a write under `quota=50M` after 30 MB were removed, `mkdir` after `rm -rf` on a full pool. An operation that is refused only
//! for that waits for the group now. Where nothing is being freed none waits.
//!
//! In these tests no group ends by itself, so that what fails does so however slow the machine is.

use std::sync::Arc;

use engine::alloc::ClassKind;
use engine::error::{Error, ErrorKind, Result};
use engine::tunables::Tunables;
use engine::vdev::DraidColumns;
use sim::scenario::{Layout, Rig, contents};
use tarnfs::zpl::{OwnerKind, QuotaOf, space_used_by};
use tarnfs::{Credentials, FileSystem, Stat, WriteMode};

const PIECE: usize = 1 << 20;
const POOL_BYTES: u64 = 256 << 20;
/// Nobody's uid.
const USER: u32 = 1234;

fn pool() -> Rig {
    let tunables = Tunables { txg_timeout_ns: 3_600_000_000_000, ..Tunables::default() };
    Rig::create_with(Layout { bytes: POOL_BYTES, ..Layout::default() }, &[("compression", "off")], tunables)
}

fn file_system(rig: &Rig, name: &str) -> Arc<FileSystem> {
    rig.pool().file_system(name).unwrap()
}

fn user() -> Credentials {
    Credentials { uid: USER, gid: USER, ..Credentials::default() }
}

/// Makes a file in the root, and lets go of it.
fn make(fs: &FileSystem, name: &str, who: &Credentials) -> Result<Stat> {
    let stat = fs.create(fs.root(), name.as_bytes(), 0o100_666, 0, who)?;
    fs.forget(stat.inode, 1);
    Ok(stat)
}

fn write(fs: &FileSystem, inode: u64, bytes: usize, who: &Credentials) -> Result<()> {
    for piece in 0..bytes.div_ceil(PIECE) {
        let part = contents((inode << 16) + piece as u64, PIECE.min(bytes - piece * PIECE), 0);
        fs.write(inode, WriteMode::At((piece * PIECE) as u64), &part, who)?;
    }
    Ok(())
}

/// Files of ten pieces each, until no more goes in and all of it is on disk.
fn fill(rig: &Rig, fs: &FileSystem, who: &Credentials) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let name = format!("f{}", names.len());
        let result = make(fs, &name, who).and_then(|stat| {
            names.push(name);
            write(fs, stat.inode, 10 * PIECE, who)
        });
        if let Err(error) = result {
            assert_full(&error);
            break;
        }
        assert!(names.len() < 100, "nothing limits it");
    }
    rig.sync();
    // What only promises had refused fits now, and at last even a byte does not.
    let last = fs.lookup(fs.root(), names[names.len() - 1].as_bytes()).unwrap();
    let mut end = last.size.next_multiple_of(PIECE as u64);
    loop {
        match fs.write(last.inode, WriteMode::At(end), &contents(end, PIECE / 8, 0), who) {
            Ok(_) => end += PIECE as u64 / 8,
            Err(error) => break assert_full(&error),
        }
        rig.sync();
    }
    fs.forget(last.inode, 1);
    names
}

#[track_caller]
fn assert_full(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Quota), "{error}");
}

fn remove(fs: &FileSystem, names: &[String]) {
    names.iter().for_each(|name| fs.unlink(fs.root(), name.as_bytes()).unwrap());
}

/// Fills, removes three files in four, and asks that `act` is let in at once.
fn freed_by_removing<T>(rig: &mut Rig, name: &str, who: &Credentials, what: &str, act: impl FnOnce(&FileSystem) -> Result<T>) {
    let fs = file_system(rig, name);
    let names = fill(rig, &fs, who);
    remove(&fs, &names[..names.len() * 3 / 4]);
    act(&fs).unwrap_or_else(|error| panic!("{what}: {error}"));
    fs.release_all();
    drop(fs);
    end(rig, what);
}

fn end(rig: &mut Rig, what: &str) {
    rig.export();
    rig.check(what);
    rig.zdb(what, false);
}

fn one_byte(fs: &FileSystem, who: &Credentials) -> Result<()> {
    let stat = make(fs, "new", who)?;
    write(fs, stat.inode, 1, who)
}

#[test]
fn a_quota_takes_what_was_freed() {
    let root = Credentials::root();
    for (limit, of, at) in [("quota", "tank/q", "tank/q"), ("refquota", "tank/q", "tank/q"), ("quota", "tank/q", "tank/q/below")] {
        let mut rig = pool();
        rig.create_file_system("tank/q", &[]);
        if at != of {
            rig.create_file_system(at, &[]);
        }
        rig.set(of, &[(limit, "50M")]);
        freed_by_removing(&mut rig, at, &root, &format!("{limit} of {of}, written in {at}"), |fs| one_byte(fs, &root));
    }
}

#[test]
fn the_quota_of_a_user_takes_what_was_freed() {
    for (kind, of, limit) in [
        (OwnerKind::User, QuotaOf::Bytes, 50 << 20),
        (OwnerKind::Group, QuotaOf::Bytes, 50 << 20),
        (OwnerKind::User, QuotaOf::Objects, 5),
    ] {
        let mut rig = pool();
        file_system(&rig, "tank").set_quota(kind, of, USER.into(), limit).unwrap();
        rig.sync();
        let who = user();
        let fs = file_system(&rig, "tank");
        let mut names = Vec::new();
        loop {
            let name = format!("f{}", names.len());
            let Ok(stat) = make(&fs, &name, &who) else { break };
            names.push(name);
            let _ = write(&fs, stat.inode, 10 * PIECE, &who);
            rig.sync();
            assert!(names.len() < 20, "nothing limits it");
        }
        remove(&fs, &names[1..]);
        one_byte(&fs, &who).unwrap_or_else(|error| panic!("{kind:?} {of:?}: {error}"));
        fs.release_all();
        drop(fs);
        end(&mut rig, "an owner with a limit");
    }
}

/// Within one group anything could be written beyond the quota of a user, a group or a project; the first to know was the next group.
#[test]
fn a_quota_of_an_owner_holds_within_one_group() {
    const LIMIT: u64 = 8 << 20;
    for kind in [OwnerKind::User, OwnerKind::Group] {
        let mut rig = pool();
        let fs = file_system(&rig, "tank");
        fs.set_quota(kind, QuotaOf::Bytes, USER.into(), LIMIT).unwrap();
        let who = user();
        let stat = make(&fs, "f", &who).unwrap();
        // However long it is already.
        fs.write(stat.inode, WriteMode::At(8 * LIMIT - 1), &[1], &who).unwrap();
        let full = write(&fs, stat.inode, 8 * LIMIT as usize, &who).expect_err("eight times the quota");
        assert_full(&full);
        rig.sync();
        let used = space_used_by(fs.objset(), kind, QuotaOf::Bytes, USER.into()).unwrap();
        assert!((LIMIT..LIMIT + LIMIT / 2).contains(&used), "{kind:?}: {used} of {LIMIT}");
        // What does not grow is not in the way of others, nor of itself.
        let other = make(&fs, "other", &Credentials::root()).unwrap();
        write(&fs, other.inode, 2 * LIMIT as usize, &Credentials::root()).unwrap();
        fs.release_all();
        drop(fs);
        end(&mut rig, "a quota within one group");
    }
}

#[test]
fn a_full_pool_takes_what_was_freed() {
    let root = Credentials::root();
    let new_directory = |fs: &FileSystem| fs.mkdir(fs.root(), b"new", 0o755, &root);
    freed_by_removing(&mut pool(), "tank", &root, "mkdir in a full pool", new_directory);
    let mut rig = pool();
    let pool = rig.pool().clone();
    freed_by_removing(&mut rig, "tank", &root, "zfs create in a full pool", |_| pool.create_file_system("tank/new", Vec::new()));
}

#[test]
fn what_a_destroyed_file_system_had_can_be_used() {
    let mut rig = pool();
    rig.create_file_system("tank/a", &[]);
    let fs = file_system(&rig, "tank/a");
    fill(&rig, &fs, &Credentials::root());
    fs.release_all();
    drop(fs);
    rig.destroy_file_system("tank/a");
    let fs = file_system(&rig, "tank");
    one_byte(&fs, &Credentials::root()).unwrap();
    fs.release_all();
    drop(fs);
    end(&mut rig, "a destroyed file system");
}

#[test]
fn what_was_cut_off_or_punched_out_can_be_used() {
    let root = Credentials::root();
    for punch in [false, true] {
        let mut rig = pool();
        rig.create_file_system("tank/q", &[("quota", "50M")]);
        let fs = file_system(&rig, "tank/q");
        let names = fill(&rig, &fs, &root);
        for name in &names[..3] {
            let stat = fs.lookup(fs.root(), name.as_bytes()).unwrap();
            if punch {
                fs.punch_hole(stat.inode, PIECE as u64, 9 * PIECE as u64, &root).unwrap();
            } else {
                fs.truncate(stat.inode, PIECE as u64, &root).unwrap();
            }
            fs.forget(stat.inode, 1);
        }
        one_byte(&fs, &root).unwrap_or_else(|error| panic!("punched: {punch}: {error}"));
        fs.release_all();
        drop(fs);
        end(&mut rig, "cut files");
    }
}

/// Somebody has a removed file open: it takes space as long as that lasts, and the refusal comes, if after a group or two. Nobody waits for what frees
/// too little, or where nothing is freed at all.
#[test]
fn nobody_waits_where_nothing_comes_free() {
    let root = Credentials::root();
    let mut rig = pool();
    rig.create_file_system("tank/q", &[("quota", "50M")]);
    let fs = file_system(&rig, "tank/q");
    let names = fill(&rig, &fs, &root);
    rig.sync();
    let groups = rig.pool().engine().context.groups.clone();
    let at = groups.open_txg();
    let refused = one_byte(&fs, &root).unwrap_err();
    assert_eq!((refused.kind(), groups.open_txg()), (ErrorKind::Quota, at), "{refused}");
    let open = fs.lookup(fs.root(), names[0].as_bytes()).unwrap();
    remove(&fs, &names[..1]);
    let refused = one_byte(&fs, &root).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Quota, "{refused}");
    assert!(groups.open_txg() <= at + 3, "it waited for {} groups", groups.open_txg() - at);
    fs.forget(open.inode, 1);
    one_byte(&fs, &root).unwrap();
    fs.release_all();
    drop(fs);
    end(&mut rig, "a file that was open");
}

/// In a file system with a refreservation below a quota that has no other room, a file can be made as large as the reservation, in such pieces. No group ends
/// by itself.
fn fill_a_refreservation(compression: &str, piece: &[u8]) {
    let root = Credentials::root();
    let tunables = Tunables { txg_timeout_ns: 3_600_000_000_000, ..Tunables::default() };
    let mut rig = Rig::create_with(Layout { bytes: 1 << 30, ..Layout::default() }, &[("compression", compression)], tunables);
    rig.create_file_system("tank/q", &[("quota", "25M")]);
    rig.set("tank/q", &[("refreservation", "15M")]);
    rig.create_file_system("tank/q/sub", &[]);
    let available = rig.pool().engine().dsl.open_dataset("tank/q/sub").unwrap().available();
    assert!((8 << 20..11 << 20).contains(&available), "{available}");
    rig.set("tank/q/sub", &[("refreservation", &available.to_string())]);
    let fs = file_system(&rig, "tank/q/sub");
    let stat = make(&fs, "f", &root).unwrap();
    if compression == "off" {
        fs.write(stat.inode, WriteMode::At(available - 1), &[1], &root).unwrap();
    }
    for at in (0..available).step_by(piece.len()) {
        let length = piece.len().min((available - at) as usize);
        fs.write(stat.inode, WriteMode::At(at), &piece[..length], &root).unwrap_or_else(|error| panic!("{at} of {available}: {error}"));
    }
    fs.release_all();
    drop(fs);
    end(&mut rig, &format!("a refreservation, compression {compression}"));
}

/// Nor could it be as large where it is not compressed: each small write asked the quota above for all that its block may take, and what it did not need
/// came back to the reservation only. The group that was then waited for left the file's blocks on disk, and one of them to be written once more.
#[test]
fn small_writes_fill_a_refreservation() {
    fill_a_refreservation("off", &[1; 4 << 10]);
}

/// A file in a file system with a refreservation could not be as large as that, though all of it came to less on disk (it was full of zeros): what was promised
/// and not yet written took the rest of the reservation, and above it there is a quota that had no room. What only promises exceed is waited for.
#[test]
fn a_refreservation_can_be_filled() {
    fill_a_refreservation("on", &[0; 8 << 10]);
}

/// What was written is known soon where it comes near to a limit, though no group ends by itself.
#[test]
fn what_is_near_a_quota_is_known_soon() {
    let root = Credentials::root();
    for limit in ["quota", "refquota"] {
        let mut rig = pool();
        rig.create_file_system("tank/q", &[(limit, "25M")]);
        let fs = file_system(&rig, "tank/q");
        let stat = make(&fs, "f", &root).unwrap();
        write(&fs, stat.inode, 20 * PIECE, &root).unwrap();
        let referenced = || rig.pool().engine().dsl.open_dataset("tank/q").unwrap().referenced().used;
        for _ in 0..500 {
            if referenced() > 10 << 20 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(referenced() > 10 << 20, "{limit}: {} bytes are known", referenced());
        fs.release_all();
        drop(fs);
        end(&mut rig, "a limit");
    }
}

/// Beside a reservation 20.0M were said to be available, and 26.2 MB could be written, of a larger pool twice as much: promises were let in as far as a fourth of what
/// the pool keeps back. What was said to be available can be written, and a little more (what is promised is written smaller or larger than was
/// thought), but no more than some MiB, however large the pool is.
#[test]
fn what_is_available_beside_a_reservation_is_what_can_be_written() {
    const BEYOND: u64 = 6 << 20;
    let root = Credentials::root();
    for bytes in [256 << 20, 4 << 30] {
        let tunables = Tunables { txg_timeout_ns: 3_600_000_000_000, ..Tunables::default() };
        let mut rig = Rig::create_with(Layout { bytes, ..Layout::default() }, &[("compression", "off")], tunables);
        rig.create_file_system("tank/reserved", &[]);
        let available = || rig.pool().engine().dsl.open_dataset("tank").unwrap().available();
        rig.set("tank/reserved", &[("reservation", &(available() - (20 << 20)).to_string())]);
        let said = available();
        assert!((19 << 20..=21 << 20).contains(&said), "{said}");
        let fs = file_system(&rig, "tank");
        let stat = make(&fs, "f", &root).unwrap();
        let mut written = 0;
        while written < said + 4 * BEYOND {
            match fs.write(stat.inode, WriteMode::At(written), &contents(written, PIECE / 2, 0), &root) {
                Ok(_) => written += PIECE as u64 / 2,
                Err(error) => {
                    assert_full(&error);
                    break;
                }
            }
        }
        assert!(written + (2 << 20) >= said && written <= said + BEYOND, "{written} of {said} that are available were written, in a pool of {bytes}");
        // What is reserved is there.
        let reserved = file_system(&rig, "tank/reserved");
        let stat = make(&reserved, "f", &root).unwrap();
        write(&reserved, stat.inode, 10 * PIECE, &root).unwrap();
        [fs, reserved].iter().for_each(|fs| fs.release_all());
        end(&mut rig, "beside a reservation");
    }
}

/// What waits to be used again.
fn waiting(rig: &Rig) -> u64 {
    rig.pool().engine().context.io.allocator().space_use(ClassKind::Normal).deferred
}

/// Freed space is used again only when two more uberblocks are on disk, so that the last two states before the newest are whole. Groups in which nothing changes
/// have none, and let it wait: five of them used to give all of it out.
#[test]
fn groups_without_changes_do_not_bring_freed_space_nearer() {
    const BYTES: u64 = 30 << 20;
    let mut rig = Rig::create_with(
        Layout { bytes: 512 << 20, ..Layout::default() },
        &[("compression", "off")],
        Tunables { txg_timeout_ns: 3_600_000_000_000, ..Tunables::default() },
    );
    let (fs, who) = (file_system(&rig, "tank"), Credentials::root());
    let stat = make(&fs, "large", &who).unwrap();
    write(&fs, stat.inode, BYTES as usize, &who).unwrap();
    rig.sync();
    fs.unlink(fs.root(), b"large").unwrap();
    // What is left to free is freed with the groups.
    let mut groups = 0;
    while waiting(&rig) < BYTES {
        rig.sync();
        groups += 1;
        assert!(groups < 10, "{} bytes wait", waiting(&rig));
    }
    let written = rig.pool().engine().uberblock().txg;
    (0..5).for_each(|_| rig.sync());
    assert_eq!(rig.pool().engine().uberblock().txg, written, "there was something to write");
    assert!(waiting(&rig) >= BYTES, "{} bytes wait", waiting(&rig));
    assert!(rig.pool().engine().capacity().allocated < BYTES, "they are shown as allocated");
    rig.pool().engine().write_group().unwrap();
    assert!(waiting(&rig) >= BYTES, "{} bytes wait", waiting(&rig));
    rig.pool().engine().write_group().unwrap();
    assert!(waiting(&rig) < BYTES, "{} bytes wait", waiting(&rig));
    fs.release_all();
    drop(fs);
    rig.export();
    rig.check("afterwards");
}

/// A pool at rest most of whose room waits: a caller that needs it has groups written, and need not wait for others to change something.
#[test]
fn room_that_waits_in_a_pool_at_rest_can_be_used() {
    let rig = Rig::create_with(
        Layout { bytes: 512 << 20, ..Layout::default() },
        &[("compression", "off")],
        Tunables { txg_timeout_ns: 3_600_000_000_000, ..Tunables::default() },
    );
    let (fs, who) = (file_system(&rig, "tank"), Credentials::root());
    for _ in 0..3 {
        let stat = make(&fs, "most", &who).unwrap();
        write(&fs, stat.inode, 250 << 20, &who).unwrap();
        rig.sync();
        fs.unlink(fs.root(), b"most").unwrap();
        rig.sync();
    }
    fs.release_all();
}

/// Each of many small transactions was taken to need a block of dnodes of its own: PostMark waited a tenth of a second for a group now and then, as all that a pool of some
/// gigabytes had was promised for 60 MB.
#[test]
fn small_changes_of_the_same_file_need_room_once() {
    let mut rig = pool();
    let (fs, root) = (file_system(&rig, "tank"), Credentials::root());
    let stat = make(&fs, "f", &root).unwrap();
    rig.sync();
    let groups = rig.pool().engine().context.groups.clone();
    let synced = groups.synced_txg();
    for number in 0..20_000_u64 {
        fs.write(stat.inode, WriteMode::At(number % 4000), b"x", &root).unwrap();
    }
    assert_eq!((groups.synced_txg(), groups.wanted_txg() <= synced), (synced, true), "groups were written to learn what is used");
    fs.release_all();
    drop(fs);
    end(&mut rig, "small changes");
}

/// Writers found all that is left promised at once, and waited for a whole group: now it is written before.
#[test]
fn a_pool_of_which_much_is_promised_writes_its_group() {
    let mut rig = pool();
    let (fs, root) = (file_system(&rig, "tank"), Credentials::root());
    let stat = make(&fs, "f", &root).unwrap();
    let groups = rig.pool().engine().context.groups.clone();
    let open = groups.open_txg();
    assert!(groups.wanted_txg() < open);
    let mut written = 0;
    while groups.wanted_txg() < open {
        fs.write(stat.inode, WriteMode::At(written), &contents(written, PIECE, 0), &root).unwrap();
        written += PIECE as u64;
        assert!(written < POOL_BYTES / 6, "no group is wanted; at a fourth one is waited for");
    }
    assert!(written > 8 << 20, "after {written} bytes");
    fs.release_all();
    drop(fs);
    end(&mut rig, "a group that is wanted early");
}

/// Each block of 4 KiB takes a whole stripe of a dRAID vdev, eight times its size. It was promised as if it took its size: what was let in found no place, and
/// the pool stopped.
#[test]
fn small_blocks_fill_draid_as_far_as_they_fit() {
    let layout = Layout { parity: 1, sides: 10, bytes: 96 << 20, ..Layout::default() };
    let mut rig = Rig::create_draid(layout, DraidColumns { data: 8, spares: 1 }, &[("compression", "off"), ("recordsize", "4K")]);
    let (fs, root) = (file_system(&rig, "tank"), Credentials::root());
    let stat = make(&fs, "f", &root).unwrap();
    let mut written = 0;
    loop {
        match fs.write(stat.inode, WriteMode::At(written), &contents(written, PIECE, 0), &root) {
            Ok(_) => written += PIECE as u64,
            Err(error) => break assert_full(&error),
        }
        assert!(written < 512 << 20, "nothing limits it");
    }
    rig.sync();
    fs.unlink(fs.root(), b"f").unwrap();
    fs.release_all();
    drop(fs);
    end(&mut rig, "small blocks on dRAID");
}

/// A file that a reservation pays for was written over, while a checkpoint kept what it had been. All of it was let in at once, though the old blocks could not be used before
/// the group was on disk: it found no place, and the pool stopped.
#[test]
fn a_reservation_is_not_beyond_what_a_checkpoint_leaves() {
    let root = Credentials::root();
    let mut rig = pool();
    rig.create_file_system("tank/r", &[("refreservation", "100M")]);
    let fs = file_system(&rig, "tank/r");
    let stat = make(&fs, "f", &root).unwrap();
    write(&fs, stat.inode, 90 * PIECE, &root).unwrap();
    rig.sync();
    rig.pool().engine().take_checkpoint().unwrap();
    for _ in 0..3 {
        if let Err(error) = write(&fs, stat.inode, 90 * PIECE, &root) {
            assert_full(&error);
        }
        rig.sync();
    }
    fs.release_all();
    drop(fs);
    rig.export();
    rig.import();
    end(&mut rig, "a reservation and a checkpoint");
}

/// With a write-back cache the kernel is told to ask before each write where the room is short. That was measured by what is on disk: of a quota of gigabytes most had been taken from
/// programs and waited for its group, and the kernel went on taking what could not be stored.
#[test]
fn room_is_without_what_waits_for_its_group() {
    let root = Credentials::root();
    for limit in ["quota", "refquota"] {
        let mut rig = pool();
        rig.create_file_system("tank/q", &[(limit, "50M")]);
        let fs = file_system(&rig, "tank/q");
        assert!((48 << 20..=50 << 20).contains(&fs.room()), "{limit}: {}", fs.room());
        let stat = make(&fs, "f", &root).unwrap();
        write(&fs, stat.inode, 10 * PIECE, &root).unwrap();
        let waits = fs.room();
        rig.sync();
        assert!((35 << 20..=40 << 20).contains(&waits), "{limit}: {waits}, and {} when it is on disk", fs.room());
        assert!((38 << 20..=40 << 20).contains(&fs.room()), "{limit}: {} on disk", fs.room());
        fs.release_all();
        drop(fs);
        end(&mut rig, "what waits");
    }
}
