//! The arithmetic against known answers, and the clockwork against the arithmetic.

use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::rotating::Arm;
use super::timing::Timing;
use super::way::Way;
use super::*;

const DISK: u64 = 4 << 30;

fn rotating(name: &str) -> &'static Rotating {
    match &preset(name).unwrap().kind {
        Kind::Rotating(disk) => disk,
        Kind::Flash(_) => panic!("{name} does not rotate"),
    }
}

/// Random places give the average seek and half a turn that the data sheet promises.
#[test]
fn random_reads_take_what_the_data_sheet_says() {
    for name in ["scsi-9g", "sata-7200", "scsi-15k"] {
        let disk = rotating(name);
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut arm = Arm { place: 0, free_at: 0.0, reading: false };
        let count = 20_000;
        for _ in 0..count {
            let place = random.random_range(0..DISK / 4096) * 4096;
            let done = disk.done_at(&arm, place, 4096, true, arm.free_at, DISK);
            arm = Arm { place: place + 4096, free_at: done, reading: true };
        }
        let expected = disk.average_random_read(4096);
        let off = arm.free_at / f64::from(count) / expected - 1.0;
        assert!(off.abs() < 0.02, "{name}: {off}");
    }
    // 8.5 ms of seek, 4.17 ms of half a turn, the rest is small.
    let expected = preset("sata-7200").unwrap().random_reads_per_second(4096);
    assert!((expected - 78.1).abs() < 0.5, "{expected}");
}

#[test]
fn reading_on_costs_what_passes_the_head() {
    let disk = rotating("sata-7200");
    let mut arm = Arm { place: 0, free_at: 1.0, reading: true };
    for _ in 0..1000 {
        // Asked for a bit later: it has been read ahead meanwhile.
        let done = disk.done_at(&arm, arm.place, 65_536, true, arm.free_at + 0.0001, DISK);
        arm = Arm { place: arm.place + 65_536, free_at: done, reading: true };
    }
    let rate = 65_536_000.0 / (arm.free_at - 1.0);
    assert!((rate / disk.bytes_per_second - 1.0).abs() < 0.001, "{rate}");
}

/// Writes that lie one behind the other and came in time are one; a rounding error took a turn now and then.
#[test]
fn writing_on_costs_what_passes_the_head() {
    let disk = rotating("sata-7200-wt");
    let mut arm = Arm { place: 1 << 20, free_at: 1.0, reading: false };
    for number in 0..1000_u64 {
        let bytes = 4096 * (1 + number % 31);
        let done = disk.done_at(&arm, arm.place, bytes, false, arm.free_at - 0.001, DISK);
        // The first one waits for its place.
        let waits = if number == 0 { disk.turn() } else { 1e-6 };
        let extra = done - arm.free_at - disk.transfer(bytes);
        assert!(extra < waits || disk.seek(arm.place - 1, arm.place, DISK) > 0.0, "write {number}: {extra} s");
        arm = disk.arm_after(&arm, arm.place, bytes, false, done);
    }
}

/// A reader that is held up for less than the buffer holds loses nothing: the disk has read on. For longer, it has stopped.
#[test]
fn a_held_up_reader_finds_what_was_read_ahead() {
    let disk = rotating("sata-7200");
    let seconds = |pause: f64| {
        let (mut arm, mut time) = (Arm { place: 0, free_at: 1.0, reading: true }, 1.0);
        for request in 0..1000 {
            time += if request % 100 == 50 { pause } else { 0.000_2 };
            let done = disk.done_at(&arm, arm.place, 131_072, true, time, DISK);
            arm = disk.arm_after(&arm, arm.place, 131_072, true, done);
            time = done;
        }
        time - 1.0
    };
    let undisturbed = 131_072_000.0 / disk.bytes_per_second;
    assert!((seconds(0.005) / undisturbed - 1.0).abs() < 0.01, "{} of {undisturbed}", seconds(0.005));
    assert!(seconds(0.050) > undisturbed + 10.0 * 0.030, "{} of {undisturbed}", seconds(0.050));
}

/// A writer that waits for each sector before it writes the next one has just missed it.
#[test]
fn a_synchronous_writer_waits_for_a_turn_each_time() {
    let disk = rotating("scsi-15k");
    let mut arm = Arm { place: 0, free_at: 0.0, reading: false };
    for _ in 0..100 {
        let done = disk.done_at(&arm, arm.place, 4096, false, arm.free_at + 0.0002, DISK);
        arm = Arm { place: arm.place + 4096, free_at: done, reading: false };
    }
    let turns = arm.free_at / disk.turn() / 100.0;
    assert!((0.99..1.05).contains(&turns), "{turns}");
}

#[test]
fn flash_works_on_as_many_requests_as_it_has_channels() {
    let Kind::Flash(disk) = &preset("sata-ssd").unwrap().kind else { panic!("it is flash") };
    let mut channels = super::flash::Channels::new(disk);
    let done: Vec<f64> = (0..16).map(|_| channels.take(disk, 512, true, 0.0)).collect();
    let (first, second) = (done[7], done[15]);
    assert!(first < 0.000_140 && second > 0.000_240 && second < 0.000_280, "{done:?}");
    assert!((channels.flush(disk, 0.0) - second - 0.0015).abs() < 1e-9);
}

/// In real time: never earlier than the arithmetic, and not much later.
#[test]
fn time_passes_as_the_model_says() {
    let model = preset("scsi-15k").unwrap();
    let timing = Timing::new(model.clone(), DISK);
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let started = Instant::now();
    for _ in 0..60 {
        timing.pass(timing.now(), random.random_range(0..DISK / 4096) * 4096, 4096, true);
    }
    let seconds = started.elapsed().as_secs_f64();
    let expected = 60.0 / model.random_reads_per_second(4096);
    assert!(seconds > expected * 0.8, "{seconds} s instead of {expected}");
    assert_eq!(timing.requests(), 60);
}

/// A cached write is quick, and the flush pays for it.
#[test]
fn a_flush_waits_for_the_cache() {
    let timing = Timing::new(preset("sata-7200").unwrap().clone(), DISK);
    let mut random = ChaCha8Rng::seed_from_u64(6);
    let places: Vec<u64> = (0..20).map(|_| random.random_range(0..DISK / 4096) * 4096).collect();
    let started = Instant::now();
    for place in &places {
        timing.pass(timing.now(), *place, 4096, false);
    }
    let written = started.elapsed();
    timing.flush();
    // Sorted by the arm, twenty random writes still take some milliseconds each.
    assert!(started.elapsed() - written > Duration::from_millis(40), "{:?} and then {:?}", written, started.elapsed());
}

/// Many at once are served in a better order than one after the other.
#[test]
fn a_queue_is_sorted() {
    let model = preset("scsi-15k").unwrap();
    let timing = Timing::new(model.clone(), DISK);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let timing = &timing;
            scope.spawn(move || {
                let mut random = ChaCha8Rng::seed_from_u64(thread);
                for _ in 0..6 {
                    timing.pass(timing.now(), random.random_range(0..DISK / 4096) * 4096, 4096, true);
                }
            });
        }
    });
    let one_after_the_other = 96.0 / model.random_reads_per_second(4096);
    let seconds = started.elapsed().as_secs_f64();
    assert!(seconds < one_after_the_other * 0.8, "{seconds} s; alone it would be {one_after_the_other}");
}

/// The time of the way is not waited for a second time.
#[test]
fn the_way_is_part_of_the_time() {
    let timing = Timing::new(preset("sata-ssd").unwrap().clone(), DISK);
    let seconds = |timing: &Timing| {
        let started = Instant::now();
        for _ in 0..100 {
            timing.pass(timing.now(), 0, 4096, true);
        }
        started.elapsed().as_secs_f64() / 100.0
    };
    timing.set_fixed(Some(0.0));
    let at_once = seconds(&timing);
    timing.set_fixed(Some(0.002));
    let fixed = seconds(&timing);
    timing.set_way(Way::new(0.001, 0.001));
    let shorter = seconds(&timing);
    assert!(at_once < 0.001 && fixed >= 0.002 && (0.001..fixed).contains(&shorter), "{at_once} {fixed} {shorter}");
    timing.set_fixed(None);
    // The model's 128 us are less than the way takes: nothing is left to wait for.
    assert!(seconds(&timing) < 0.001);
}

#[test]
fn what_a_machine_cannot_keep_is_refused_with_the_figures() {
    let way = Way::new(40e-6, 90e-6);
    assert!((way.whole(66 << 10) - 65e-6).abs() < 1e-6, "{}", way.whole(66 << 10));
    for name in ["scsi-9g", "sata-7200", "scsi-15k", "sata-ssd"] {
        assert_eq!(preset(name).unwrap().refusal(&way), None);
    }
    let why = preset("nvme").unwrap().refusal(&way).unwrap();
    assert!(why.contains("answers a request within 21 us") && why.contains("alone takes 40 us"), "{why}");
    // Its writes: 60 us and the bus.
    assert!(preset("sata-ssd").unwrap().refusal(&Way::new(70e-6, 90e-6)).is_some());
}

/// A machine that carries two requests at a time gets a disk of two, not one of eight that is late.
#[test]
fn a_flash_disk_has_as_many_channels_as_the_machine_can_carry() {
    let ssd = model("sata-ssd").unwrap();
    let (threads, expected) = ssd.random_reads_together(4096).unwrap();
    assert_eq!((threads, ssd.overload(expected * 0.95)), (8, None));
    let why = ssd.overload(expected * 0.5).unwrap();
    assert!(why.contains("8 at a time") && why.ends_with("; sata-ssd:2 is such a disk with 2 of its channels"), "{why}");
    assert!(!ssd.overload(2_000.0).unwrap().contains("channels"));
    let two = model("sata-ssd:2").unwrap();
    assert_eq!((two.name.as_ref(), two.random_reads_together(4096).unwrap().0), ("sata-ssd:2", 2));
    assert!((two.random_reads_together(4096).unwrap().1 / expected - 0.25).abs() < 0.01);
    assert!(two.overload(13_500.0).unwrap().ends_with("; sata-ssd:1 is such a disk with 1 of its channels"));
    let said = |text: &str| model(text).unwrap_err().to_string();
    assert_eq!(said("scsi-15k:2"), "scsi-15k:2: scsi-15k has one arm, and no channels");
    for wrong in ["sata-ssd:0", "sata-ssd:9", "sata-ssd:x", "sata-ssd:"] {
        assert_eq!(said(wrong), format!("{wrong}: sata-ssd has 1 to 8 channels"));
    }
    assert!(said("floppy").starts_with("floppy: there are scsi-9g, "));
    assert!(model("scsi-15k").unwrap().overload(1.0).is_none());
}
