//! Experiments to report on, of services that are not there.

use std::{fs, path::PathBuf, sync::LazyLock, time::Duration};

use speed_bump_experiment::{
    record::Experiment,
    simulated::{Function, Noise, sweep},
};

/// A unit takes so many ns.
const UNIT: f64 = 1e6;

/// Text that is code where it is not escaped.
pub(crate) const HOSTILE: [&str; 6] = [
    "<script>window.hostile=1</script>",
    "\"><img src=x onerror=window.hostile=2>",
    "</style></title></script><svg onload=window.hostile=3>",
    "a\u{202e}gnp.exe\u{1b}[31m\r\nb",
    "=HYPERLINK(\"http://example.com\")",
    "&lt;already&gt; 'quoted' `ticked` | [link](javascript:alert(1)) @everyone",
];

/// A unit waits for two functions; what two others do stays hidden, with slack of one of them; one takes next
/// to nothing. Their names are hostile.
pub(crate) static HOSTILE_RECORD: LazyLock<Experiment> = LazyLock::new(|| {
    let name = |number: usize| HOSTILE[number].to_owned();
    let of = |sensitivity, slack| Function { calls: 3.0, sensitivity, slack };
    let mut functions = vec![
        (name(0), of(1.0, 0.0), 0.3 * UNIT),
        (name(1), of(0.5, 0.0), 0.1 * UNIT),
        (name(2), of(0.0, 0.0), 0.4 * UNIT),
        (name(3), of(1.0, 0.06 * UNIT), 0.1 * UNIT),
        (name(4), of(0.0, 0.0), 0.001 * UNIT),
    ];
    functions.push((name(5).repeat(2_000), of(1.0, 0.0), 0.05 * UNIT));
    let mut measured = sweep(UNIT, &functions, Noise::White(0.01), Duration::from_secs(60), 5);
    measured.unit.name = name(0);
    measured.cpu = name(1);
    measured.kernel = name(2);
    measured.command.extend(HOSTILE.map(str::to_owned));
    measured.phases[0].outcome = name(2);
    measured.candidates[0].file = PathBuf::from("/srv/\u{1b}]0;x\u{7}\nfoo matters.py");
    measured.candidates[1].file = PathBuf::from("/srv/<b>.py");
    Experiment::new(measured)
});

/// A thousand functions, of which three matter, in a sweep of more than 200 slices.
pub(crate) static LARGE: LazyLock<Experiment> = LazyLock::new(|| {
    let sensitivity = |number: usize| f64::from(u8::from([7, 501, 901].contains(&number)));
    let functions: Vec<_> = (0..1_000)
        .map(|number| {
            let function = Function { calls: 5.0, sensitivity: sensitivity(number), slack: 0.0 };
            // Half of them are not worth a look.
            (
                format!("a_package.a_module.AClass.function_{number}"),
                function,
                UNIT * (0.008 + (number % 2) as f64 * 0.01 + number as f64 * 1e-6),
            )
        })
        .collect();
    Experiment::new(sweep(UNIT, &functions, Noise::White(0.01), Duration::from_secs(120), 3))
});

/// Its JSON in a file, for the command.
pub(crate) fn written(experiment: &Experiment) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.json");
    fs::write(&path, serde_json::to_string(experiment).unwrap()).unwrap();
    (folder, path)
}
