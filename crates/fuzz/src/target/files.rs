//! What is known of a file: system attributes, old znodes, access control lists.

use ondisk::{acl, sa, znode as ondisk_znode};

use crate::{Input, seeds};

pub(super) fn system_attributes(bytes: &[u8]) {
    let _ = sa::owner(bytes);
    if let Ok(Some(header)) = sa::header(bytes) {
        assert!(header.size <= bytes.len() && header.size % 8 == 0);
        for index in [0, 1, 2, 100] {
            let _ = sa::variable_length(bytes, &header, index);
        }
    }
    let mut input = Input::new(bytes);
    if let Ok(registration) = sa::Registration::decode(input.u64()) {
        let again = sa::Registration::decode(registration.encode());
        assert_eq!(again, Ok(registration));
        registration.class.swap(&mut input.rest().to_vec());
    }
    for kind in [ondisk::object_type::ObjectType::SA, ondisk::object_type::ObjectType::ZNODE] {
        let _ = tarnfs::zpl::file_owner(kind, bytes);
    }
}

pub(super) fn system_attributes_seeds() -> Vec<Vec<u8>> {
    seeds::bonuses(ondisk::object_type::ObjectType::SA)
}

pub(super) fn znode(bytes: &[u8]) {
    if let Ok(znode) = ondisk_znode::znode(bytes) {
        let acl = znode.acl;
        let _ = acl::decode(acl.version.get(), usize::from(acl.count.get()), &acl.entries);
    }
    let _ = ondisk_znode::owner(bytes);
}

pub(super) fn znode_seeds() -> Vec<Vec<u8>> {
    vec![(0..264u16).map(|n| n as u8).collect(), vec![0; 264]]
}

pub(super) fn acl(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (version, count, mode) = (u16::from(input.u8()), input.u16(), input.u64());
    let mut swapped = input.rest().to_vec();
    acl::swap_entries(&mut swapped);
    let Ok(entries) = acl::decode(version, usize::from(count), input.rest()) else { return };
    let encoded = acl::encode(version, &entries);
    assert_eq!(acl::decode(version, entries.len(), &encoded).as_ref(), Ok(&entries));
    let _ = (acl::mode(&entries, mode, mode >> 32), acl::is_trivial(&entries));
    for directory in [false, true] {
        let child = if directory { acl::Child::Directory } else { acl::Child::Regular };
        for number in 0..6 {
            let (inheriting, changing) = (acl::InheritRule::from_number(number), acl::ModeRule::from_number(number));
            let _ = acl::begin(&entries, child, mode & 0o7777, inheriting, changing);
        }
        let _ = acl::change_mode(&entries, mode, directory, mode & 1 != 0, mode & 2 != 0);
        assert_eq!(acl::mode(&acl::trivial(mode, directory), 1, 2).0 & 0o777, mode & 0o777);
    }
}

pub(super) fn acl_seeds() -> Vec<Vec<u8>> {
    let seed = |version: u8, mode: u64| {
        let entries = acl::trivial(mode, mode & 1 != 0);
        let head = [&[version, entries.len() as u8, 0][..], &mode.to_le_bytes()].concat();
        [head, acl::encode(version.into(), &entries)].concat()
    };
    (0..2).flat_map(|version| [0o644, 0o755, 0o007, 0o421].map(|mode| seed(version, mode))).collect()
}
