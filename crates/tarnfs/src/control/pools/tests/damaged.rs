//! Pools of which something is damaged are shown, and got rid of, like any other.

use engine::dsl::SpaceCheck;
use engine::dsl::meta::key;

use super::*;

fn status(rig: &mut Rig, name: Option<&str>, properties: Wanted) -> Vec<PoolStatus> {
    rig.pools.pool_status(PoolSelect { name: name.map(str::to_owned), properties }).unwrap()
}

/// One pool whose log of damaged blocks was no object: `zpool status` and `zpool list` showed none of all pools, and `zpool export` of it said that there was no such pool.
#[test]
fn one_damaged_pool_hides_no_other() {
    let mut rig = Rig::new();
    let (a, b) = (rig.image("a.img"), rig.image("b.img"));
    rig.create("bad", &[&a], Vec::new()).unwrap();
    rig.create("good", &[&b], Vec::new()).unwrap();
    let dsl = rig.pools.find("bad").unwrap().pool.engine().dsl.clone();
    dsl.run_task(1, SpaceCheck::None, |_| Ok(()), |dsl, tx| dsl.meta.mos.zap_set_u64(key::DIRECTORY, "errlog_last", 1 << 40, tx)).unwrap();
    let found = status(&mut rig, None, Wanted::Only(Vec::new()));
    let shown: Vec<_> = found.iter().map(|status| (status.name.as_str(), status.error_count)).collect();
    assert_eq!(shown, [("bad", Some(1)), ("good", Some(0))]);
    let all = rig.pools.pool_list(PoolSelect { name: None, properties: Wanted::All }).unwrap();
    assert_eq!(all.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["bad", "good"]);
    drop(dsl);
    rig.export("bad");
    rig.export("good");
}
