//! Limits that change while a daemon runs, by the names that OpenZFS has for them, for what plays the part of its module.

use engine::tunables::{Parameter, Tunables};

/// Each name, and the value that a daemon with so large a cache has at first.
pub fn at_first(cache_bytes: u64) -> Vec<(&'static str, u64)> {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let limits = Tunables::for_machine(cache_bytes, processors);
    Parameter::all().map(|parameter| (parameter.name(), limits.now(parameter))).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_takes_the_value_that_it_has_at_first() {
        let limits = super::Tunables::default();
        for (parameter, (name, value)) in super::Parameter::all().zip(super::at_first(512 << 20)) {
            assert_eq!(parameter.name(), name);
            limits.parameters.set(parameter, &value.to_string()).unwrap();
        }
    }
}
