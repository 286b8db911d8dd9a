//! Fields that several requests have.

use std::str::FromStr;

use crate::{control::RequestError, units::Pid};

/// The processes that `pids` names: one at least.
pub(super) fn pids(numbers: &[i32]) -> Result<Vec<Pid>, RequestError> {
    if numbers.is_empty() {
        return Err(RequestError::request("`pids` is empty: name the processes"));
    }
    let pid = |number: &i32| {
        Pid::new(*number).ok_or_else(|| RequestError::request(format!("{number} is no process id")))
    };
    numbers.iter().map(pid).collect()
}

/// What an `engine` or an `entry` names; `auto` where it is absent.
pub(super) fn choice<T: FromStr<Err = String>>(name: Option<&str>) -> Result<T, RequestError> {
    name.unwrap_or("auto").parse().map_err(RequestError::request)
}
