//! How many locks an operation of the library takes; `docs/performance.md` has all figures. Builds with debug assertions count them.

#[path = "../benches/shared/mod.rs"]
mod shared;

#[cfg(debug_assertions)]
#[test]
fn no_operation_takes_more_locks_than_it_may_and_none_of_the_pool() {
    let rig = shared::Rig::new();
    for operation in &shared::OPERATIONS {
        let Some((_, most)) = shared::LOCKS_MAX.iter().find(|(name, _)| *name == operation.name) else { continue };
        let locks = shared::count_locks(operation, &rig.places, 1 << 32, |run| run());
        assert!(locks.all > 0 && locks.all <= *most && locks.with_pool == 0, "{}: {} locks, {} of the pool\n{}", operation.name, locks.all, locks.with_pool, shared::lines(&locks).join("\n"));
    }
    rig.end();
}
