//! Features that this program keeps right without using them itself: golden pools that use them are written, and the
//! real `zdb` finds nothing wrong afterwards.

use sim::places;
use sim::scenario::Rig;

fn golden(name: &str) -> Option<Rig> {
    let rig = Rig::golden(name);
    if rig.is_none() {
        places::skipped(&format!("golden pool {name}: not found"));
    }
    rig
}

/// Without its key an encrypted dataset cannot be opened, nothing can be made below it, and it can be destroyed: its
/// blocks, which are found without the key, and its share of the key go.
#[test]
fn an_encrypted_dataset_is_destroyed_without_its_key() {
    let Some(mut rig) = golden("encrypt") else { return };
    let message = |result: Result<(), tarnfs::Error>| result.expect_err("no key is loaded").to_string();
    let opened = message(rig.pool().file_system("g_encrypt/pass/clone").map(drop));
    assert!(opened.contains("its key is not loaded"), "{opened}");
    let made = message(rig.pool().create_file_system("g_encrypt/pass/new", Vec::new()));
    assert!(made.contains("its parent is encrypted"), "{made}");
    let dataset = |rig: &Rig| rig.pool().engine().dsl.open_dataset("g_encrypt/pass/clone").is_ok();
    assert!(dataset(&rig));
    rig.pool().destroy_file_system("g_encrypt/pass/clone").expect("it has no snapshots");
    rig.sync();
    assert!(!dataset(&rig));
    rig.export();
    rig.check("encrypt: a clone destroyed");
    rig.zdb("encrypt: a clone destroyed", true);
}
