#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn ancestors_are_followed_to_process_1_or_0() {
    let tree = |pid| match pid {
        2 | 1 => Some(0),
        50 => Some(2),
        60 => Some(50),
        100 => Some(1),
        110 => Some(100),
        _ => None,
    };
    assert!(descends_from_init(1, tree) && descends_from_init(100, tree) && descends_from_init(110, tree));
    // kthreadd, a process that kthreadd started, and a child of that process.
    assert!(!descends_from_init(2, tree) && !descends_from_init(50, tree));
    assert!(!descends_from_init(60, tree));
    // This process ended during the search.
    assert!(descends_from_init(999, tree));
    assert!(!descends_from_init(7, |_| Some(7)), "no end");
}

#[test]
fn files_of_the_system_and_of_what_the_kernel_starts_are_refused() {
    let started = [("core_pattern", PathBuf::from("/opt/collector/bin/collect"))];
    let refused = |path: &str| check_place(Path::new(path), &started).map_err(|error| error.to_string());
    for path in [
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
        "/usr/bin/python3.11",
        "/proc/77/root/usr/lib/libc.so.6",
        "/nix/store/abc-glibc/lib/libc.so.6",
    ] {
        let said = refused(path).unwrap_err();
        assert!(said.contains("belongs to the system") && said.contains("--engine bpf"), "{said}");
    }
    let said = refused("/opt/collector/lib/libcollect.so").unwrap_err();
    assert!(said.contains("/opt/collector/bin/collect (core_pattern)"), "{said}");
    for path in [
        "/usr/local/bin/service",
        "/opt/service/bin/service",
        "/home/me/service",
        "/srv/root/service",
        "/proc/77/root/service",
        "/usrlocal/service",
    ] {
        assert_eq!(refused(path), Ok(()), "{path}");
    }
}

#[test]
fn settings_name_programs_or_none() {
    let pattern = |text| program_of("/proc/sys/kernel/core_pattern", text);
    assert_eq!(pattern("|/usr/share/apport/apport %p %s\n"), Some("/usr/share/apport/apport".into()));
    assert_eq!(pattern("core\n"), None);
    assert_eq!(pattern("/var/crash/core.%p\n"), None);
    let other = |text| program_of("/proc/sys/kernel/modprobe", text);
    assert_eq!(other("/sbin/modprobe\n"), Some("/sbin/modprobe".into()));
    assert_eq!(other("\n"), None);
}

#[test]
fn the_listing_has_to_hold_all_and_one_target_for_each_place() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&file, "").unwrap();
    fs::hard_link(&file, &link).unwrap();
    let name = |path: &Path, symbol: &str| TargetName::new(path, symbol).unwrap();
    let listing = |name: &TargetName| Listing::parse(&format!("{name} delay_ns=1 hits=1\n"));

    let (wanted, other) = (name(&file, "f"), name(&link, "g"));
    let refused = check_listing(&listing(&other), &[], &[&wanted]).unwrap_err();
    assert!(matches!(&refused, UpstreamRefusal::Shared { .. }), "{refused}");
    // Two of our own targets may be in one file.
    assert!(check_listing(&listing(&other), &[other], &[&wanted]).is_ok());

    let path = folder.path().join("p".repeat(150));
    let names: Vec<_> = (10..40).map(|number| name(&path, &format!("function_{number}"))).collect();
    let names: Vec<_> = names.iter().collect();
    let fit = PAGE / (names[0].as_str().len() + LINE);
    assert!(check_listing(&Listing::default(), &[], &names[..fit]).is_ok());
    let refused = check_listing(&Listing::default(), &[], &names[..=fit]).unwrap_err();
    assert!(matches!(refused, UpstreamRefusal::Unlisted { .. }), "{refused}");
}

#[test]
fn the_longest_line_is_as_long_as_it_is_taken_for() {
    let line = " delay_ns=10000000000 hits=9223372036854775807 pid=4194304\n";
    assert!(line.len() <= LINE, "{}", line.len());
}
