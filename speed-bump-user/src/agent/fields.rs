//! Fields that several requests share.

use std::str::FromStr;

use crate::{control::RequestError, units::Pid};

/// The processes in `pids`, at least one.
pub(super) fn pids(numbers: &[i32]) -> Result<Vec<Pid>, RequestError> {
    if numbers.is_empty() {
        return Err(RequestError::request("`pids` is empty: name the processes"));
    }
    let pid = |number: &i32| {
        Pid::new(*number).ok_or_else(|| RequestError::request(format!("{number} is not a process id")))
    };
    numbers.iter().map(pid).collect()
}

/// Parses an `engine` or an `entry`; `auto` if it is absent.
pub(super) fn choice<T: FromStr<Err = String>>(name: Option<&str>) -> Result<T, RequestError> {
    name.unwrap_or("auto").parse().map_err(RequestError::request)
}
