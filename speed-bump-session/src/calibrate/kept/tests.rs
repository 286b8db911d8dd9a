#![allow(clippy::unwrap_used)]

use std::{
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::Path,
};

use super::*;
use crate::{kernel::Support, probe::site::SiteKind};

fn kernel() -> KernelFacts {
    KernelFacts {
        release: "6.18.0".to_owned(),
        cookies: Support::Yes,
        bpf_loop: Support::Yes,
        uprobe_multi: Support::Yes,
        ..KernelFacts::default()
    }
}

fn a_table() -> CostTable {
    let cost = |stub: Stub| SiteCost {
        kind: stub.kind,
        unselected: Nanos(500),
        floor: Nanos(900),
        overhead: Nanos(1_100),
    };
    let mut way = Coldness { warm_ns: 80, ..Coldness::default() };
    way.segments[0] = ColdSegment { length_ns: 20, factor: 512 };
    CostTable {
        form: Form::Multi,
        costs: Stub::all().into_iter().map(cost).collect(),
        coldness: [way, Coldness::default()],
        nop5_survives_forks: true,
        signal: Some(Nanos(2_000)),
    }
}

/// Costs that are kept in a folder of the test.
fn kept(folder: &Path) -> KeptCosts {
    KeptCosts { folder: folder.join("kept"), ..KeptCosts::for_kernel(&kernel()) }
}

#[test]
fn what_is_kept_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let kept = kept(folder.path());
    assert_eq!(kept.read(&kernel()), None);
    kept.write(&a_table());
    assert_eq!(kept.read(&kernel()), Some(a_table()));
    let other = CostTable { signal: None, ..a_table() };
    kept.write(&other);
    assert_eq!(kept.read(&kernel()), Some(other));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&kept.folder), mode(&kept.folder.join(file::NAME))), (0o700, 0o600));
    // The folder contains only this file.
    assert_eq!(fs::read_dir(&kept.folder).unwrap().count(), 1);
}

#[test]
fn what_is_of_another_machine_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let kept = kept(folder.path());
    kept.write(&a_table());
    let key = kept.key.clone().unwrap();
    for other in [
        Key { boot_id: "another".to_owned(), ..key.clone() },
        Key { kernel: "6.19.0".to_owned(), ..key.clone() },
        Key { processor: "another".to_owned(), ..key.clone() },
        Key { build: "another".to_owned(), ..key },
    ] {
        assert_eq!(KeptCosts { key: Some(other), ..kept.clone() }.read(&kernel()), None);
    }
    assert!(kept.read(&kernel()).is_some());
    assert_eq!(KeptCosts { key: None, ..kept }.read(&kernel()), None);
}

#[test]
fn what_makes_no_sense_is_not_used() {
    let key = Key::read(&kernel()).unwrap();
    let read = |table: &CostTable| {
        let text = serde_json::to_vec(&contents(table, key.clone())).unwrap();
        self::table(&text, &key, &kernel())
    };
    assert_eq!(read(&a_table()), Ok(a_table()));
    let changed = |change: &dyn Fn(&mut CostTable)| {
        let mut table = a_table();
        change(&mut table);
        read(&table).unwrap_err()
    };
    assert!(changed(&|table| table.form = Form::Copied).contains("Copied"));
    for why in [
        changed(&|table| table.costs.clear()),
        changed(&|table| table.costs.reverse()),
        changed(&|table| table.costs[0].kind = SiteKind::SingleStep),
    ] {
        assert_eq!(why, "they are of other kinds of sites");
    }
    for why in [
        changed(&|table| table.costs[1].overhead = Nanos(u64::MAX)),
        changed(&|table| table.costs[1].floor = Nanos(MAX.0 + 1)),
        changed(&|table| table.signal = Some(Nanos(MAX.0 + 1))),
        changed(&|table| table.coldness[1].warm_ns = u32::MAX),
        changed(&|table| table.coldness[0].segments[2].length_ns = u32::MAX),
    ] {
        assert_eq!(why, "a call takes more than 10ms there");
    }
    let why = changed(&|table| table.coldness[1].segments[1].factor = MAX_FACTOR + 1);
    assert_eq!(why, "cold caches cost more there than can be");
    for text in ["", "{", "[]", "{\"key\":null}"] {
        assert!(table(text.as_bytes(), &key, &kernel()).is_err(), "{text}");
    }
    let mut more: serde_json::Value = serde_json::to_value(contents(&a_table(), key.clone())).unwrap();
    more["more"] = 1.into();
    assert!(table(more.to_string().as_bytes(), &key, &kernel()).unwrap_err().contains("more"));
}

#[test]
fn what_others_could_have_put_there_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let kept = kept(folder.path());
    kept.write(&a_table());
    let (place, path) = (kept.folder.clone(), kept.folder.join(file::NAME));
    let why = || file::read(&place).map(drop).unwrap_err().to_string();
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(&path, 0o622);
    assert_eq!(why(), "others than its owner may write to costs.json");
    mode(&path, 0o600);
    mode(&place, 0o770);
    assert!(why().starts_with("others than its owner may write to /"), "{}", why());
    assert!(file::write(&place, b"").is_err());
    mode(&place, 0o700);
    assert!(file::read(&place).unwrap().is_some());
    let text = fs::read(&path).unwrap();
    fs::write(&path, vec![b' '; file::MAX_BYTES as usize + 1]).unwrap();
    assert_eq!(why(), "costs.json has more than 65536 bytes");
    // We do not follow a link, and do not wait for a pipe. Writing replaces a link or a pipe by a file.
    let elsewhere = folder.path().join("elsewhere");
    fs::write(&elsewhere, &text).unwrap();
    fs::remove_file(&path).unwrap();
    symlink(&elsewhere, &path).unwrap();
    assert!(file::read(&place).is_err());
    kept.write(&CostTable { signal: None, ..a_table() });
    assert_eq!(fs::read(&elsewhere).unwrap(), text);
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
    fs::remove_file(&path).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(pipe.success());
    assert_eq!(why(), "costs.json is no regular file");
    kept.write(&a_table());
    if rustix::process::geteuid().is_root() {
        chown(&path, Some(65_534), None).unwrap();
        assert_eq!(why(), "costs.json belongs to another user");
        chown(&place, Some(65_534), None).unwrap();
        assert!(why().ends_with("kept belongs to another user"), "{}", why());
    }
    let link = folder.path().join("link");
    symlink(&place, &link).unwrap();
    assert!(file::read(&link).unwrap_err().to_string().ends_with("link is no folder"));
}

#[test]
fn a_model_is_what_the_first_processor_says_and_does_not_change() {
    let text = "processor\t: 0\nvendor_id\t: A\nmodel\t\t: 6\nmodel name\t: A One\ncpu MHz\t\t: 2100.5\n\n\
                processor\t: 1\nmodel name\t: B\n";
    assert_eq!(model(text), "A, 6, A One");
    assert_eq!(model("no such text"), "");
    assert_eq!(processor().unwrap(), processor().unwrap());
}
