//! Every target, over its seeds and some mutations. `TARN_SEED=n` chooses others, `TARN_ROUNDS=n` how many times as many.

use fuzz::replay::replay;
use fuzz::target::TARGETS;

#[test]
fn targets_survive_mutations() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |value| value.parse().expect("a number"));
    let (seed, times) = (number("TARN_SEED", 1), number("TARN_ROUNDS", 1));
    println!("seed {seed}; again: TARN_SEED={seed} cargo test -p fuzz --test targets");
    for target in TARGETS {
        println!("{}", target.name);
        replay(target, target.rounds * times, seed);
    }
}
