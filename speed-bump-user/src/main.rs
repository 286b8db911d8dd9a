//! The command `speed-bump-ebpf`.

fn main() {
    let start = std::time::Instant::now();
    tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).init();
    match speed_bump_user::calibrate::Calibration::measure() {
        Ok(c) => println!("{:?}\n{:#?}", c.attach_type(), c.costs()),
        Err(e) => println!("{e}"),
    }
    println!("{:?}", start.elapsed());
}
