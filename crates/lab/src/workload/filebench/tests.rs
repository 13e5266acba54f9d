//! What the personalities do, and that they do nothing to each other's files.

use std::collections::HashSet;

use super::*;
use crate::target::{HostDirectory, Target};

fn tiny(name: &str) -> Box<dyn Workload> {
    let mut workload = all().into_iter().find(|workload| workload.name() == name).unwrap();
    for (parameter, value) in [("files", 60), ("seconds", 1), ("threads", 4), ("size", 5000)] {
        workload.parameters_mut().set(parameter, value).unwrap();
    }
    workload
}

fn filebench(name: &str) -> Filebench {
    let personality = PERSONALITIES.iter().find(|personality| personality.name == name).unwrap();
    Filebench { personality, parameters: tiny(name).parameters().clone() }
}

#[test]
fn each_runs_and_leaves_whole_loops_in_proportion() {
    for personality in &PERSONALITIES {
        let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
        let workload = filebench(personality.name);
        let round = Round::new(&host, host.directory(), 0, 5);
        workload.prepare(&round).unwrap();
        let (tally, _, latencies) = workload.run(&round).unwrap();
        assert_eq!(latencies.count(), tally.operations(), "each operation is timed");
        let steps = |wanted: &[Step]| personality.steps.iter().filter(|step| wanted.contains(step)).count() as u64;
        // Each of the four threads may be somewhere in its last loop.
        let loops = tally.closes / steps(&[Close]);
        let expect = |what: &str, done: u64, wanted: &[Step]| {
            let (least, most) = (loops.saturating_sub(4) * steps(wanted), (loops + 5) * steps(wanted));
            assert!((least..=most).contains(&done), "{}: {what}: {done}, loops {loops}", personality.name);
        };
        assert!(loops > 4, "{}: {loops}", personality.name);
        expect("creates", tally.creates, &[Create]);
        expect("opens", tally.opens, &[Open]);
        expect("reads", tally.reads, &[ReadWhole]);
        expect("writes", tally.writes, &[WriteWhole, Append, AppendLog]);
        expect("syncs", tally.syncs, &[Sync]);
        expect("deletes", tally.deletes, &[Delete]);
        expect("stats", tally.stats, &[Stat]);
    }
}

#[test]
fn sizes_have_the_mean_and_the_spread_of_the_definition() {
    let mut parameters = PERSONALITIES[0].parameters;
    parameters[0].value = 20_000;
    let set = FileSet::new(std::path::Path::new("/nowhere"), &Parameters::new(&parameters), 3);
    let sizes: Vec<f64> = (0..20_000).map(|number| set.size(number) as f64).collect();
    let mean = sizes.iter().sum::<f64>() / 20_000.0;
    let deviation = (sizes.iter().map(|size| (size - mean).powi(2)).sum::<f64>() / 20_000.0).sqrt();
    assert!((mean / 131_072.0 - 1.0).abs() < 0.03, "{mean}");
    // Of a gamma distribution: mean / sqrt(shape).
    assert!((deviation / (131_072.0 / 1.5_f64.sqrt()) - 1.0).abs() < 0.05, "{deviation}");
}

#[test]
fn no_directory_is_wider_than_it_may_be() {
    let mut parameters = Parameters::new(&PERSONALITIES[0].parameters);
    parameters.set("files", 1234).unwrap();
    let set = FileSet::new(std::path::Path::new("/top"), &parameters, 3);
    let paths: HashSet<_> = (0..1234).map(|number| set.path(number)).collect();
    assert_eq!(paths.len(), 1234);
    let mut entries: std::collections::HashMap<_, HashSet<_>> = std::collections::HashMap::new();
    for path in &paths {
        for pair in path.ancestors().collect::<Vec<_>>().windows(2) {
            entries.entry(pair[1].to_owned()).or_default().insert(pair[0].to_owned());
        }
    }
    assert!(entries.values().all(|names| names.len() <= 20), "{:?}", entries.values().map(HashSet::len).max());
    parameters.set("width", 1_000_000).unwrap();
    let flat = FileSet::new(std::path::Path::new("/top"), &parameters, 3);
    assert_eq!(flat.path(7), std::path::Path::new("/top/f7"));
}

#[test]
fn a_file_is_one_thread_s_at_a_time() {
    let mut parameters = Parameters::new(&PERSONALITIES[1].parameters);
    parameters.set("files", 20).unwrap();
    parameters.set("exist", 100).unwrap();
    let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
    let set = FileSet::new(host.directory(), &parameters, 3);
    set.make().unwrap();
    let set = set.found_on_disk().unwrap();
    let mut random = rand::SeedableRng::seed_from_u64(1);
    let taken: HashSet<_> = (0..20).map(|_| set.take_present(&mut random).unwrap()).collect();
    assert_eq!((taken.len(), set.take_present(&mut random), set.take_absent(&mut random)), (20, None, None));
    set.give_absent(4);
    assert_eq!(set.take_absent(&mut random), Some(4));
}
