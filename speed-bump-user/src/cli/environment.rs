//! The environment variables of upstream Speed Bump, as defaults for the flags.
//!
//! Same names, same meaning, same refusals. One difference in kind: upstream counts `START_MS` from the
//! start of the process, we from the attach.

use std::{env, ffi::OsString, num::NonZeroU64, path::PathBuf, time::Duration};

use crate::units::Nanos;

/// A variable that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// Not an integer.
    #[error("{name}: `{}` is not an integer; expected a number of {unit}", value.display())]
    NotInteger {
        /// The variable.
        name: &'static str,
        /// Value that the variable has.
        value: OsString,
        /// What it counts.
        unit: &'static str,
    },
    /// Below what makes sense.
    #[error("{name}: {value} is below the minimum {minimum}")]
    BelowMinimum {
        /// The variable.
        name: &'static str,
        /// Value that the variable has.
        value: i128,
        /// The smallest that is accepted.
        minimum: i128,
    },
    /// Above what can be done.
    #[error("{name}: {value} is above the maximum {maximum}")]
    AboveMaximum {
        /// The variable.
        name: &'static str,
        /// Value that the variable has.
        value: i128,
        /// The largest that is accepted.
        maximum: i128,
    },
}

/// What the environment says; `None` where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `SPEED_BUMP_TARGETS`
    pub targets: Option<PathBuf>,
    /// `SPEED_BUMP_DELAY_NS`
    pub delay: Option<Nanos>,
    /// `SPEED_BUMP_FREQUENCY`
    pub frequency: Option<NonZeroU64>,
    /// `SPEED_BUMP_START_MS`
    pub start_after: Option<Duration>,
    /// `SPEED_BUMP_DURATION_MS`
    pub duration: Option<Duration>,
}

impl Environment {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// A variable that is set and not acceptable, also where a flag would override it: upstream refuses
    /// it, and a typo is better found than hidden.
    pub fn read() -> Result<Self, EnvironmentError> {
        Self::from(|name| env::var_os(name))
    }

    /// Reads from any source of variables.
    ///
    /// # Errors
    /// As [`Environment::read`].
    pub fn from(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, EnvironmentError> {
        let milliseconds = |name| {
            let value = integer(&variable, name, "milliseconds", 0, i128::from(u64::MAX / 1_000_000))?;
            Ok(value.map(Duration::from_millis))
        };
        Ok(Self {
            // Empty means unset, as upstream has it.
            targets: variable("SPEED_BUMP_TARGETS").filter(|path| !path.is_empty()).map(PathBuf::from),
            delay: integer(
                &variable,
                "SPEED_BUMP_DELAY_NS",
                "nanoseconds",
                0,
                i128::from(Nanos::MAX_DELAY.0),
            )?
            .map(Nanos),
            frequency: integer(&variable, "SPEED_BUMP_FREQUENCY", "calls", 1, i128::from(u64::MAX))?
                .and_then(NonZeroU64::new),
            start_after: milliseconds("SPEED_BUMP_START_MS")?,
            duration: milliseconds("SPEED_BUMP_DURATION_MS")?,
        })
    }
}

fn integer(
    variable: &impl Fn(&str) -> Option<OsString>,
    name: &'static str,
    unit: &'static str,
    minimum: i128,
    maximum: i128,
) -> Result<Option<u64>, EnvironmentError> {
    let Some(text) = variable(name) else { return Ok(None) };
    let value: i128 = text
        .to_str()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| EnvironmentError::NotInteger { name, value: text.clone(), unit })?;
    if value < minimum {
        return Err(EnvironmentError::BelowMinimum { name, value, minimum });
    }
    u64::try_from(value).ok().filter(|_| value <= maximum).map(Some).ok_or(EnvironmentError::AboveMaximum {
        name,
        value,
        maximum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &'static str, value: &'static str) -> Result<Environment, EnvironmentError> {
        Environment::from(|asked| (asked == name).then(|| value.into()))
    }

    #[test]
    fn unset_and_empty_say_nothing() {
        assert_eq!(Environment::from(|_| None), Ok(Environment::default()));
        assert_eq!(one("SPEED_BUMP_TARGETS", ""), Ok(Environment::default()));
    }

    #[test]
    fn values_are_read_with_their_units() {
        let read = |name, value| one(name, value).map_err(|error| error.to_string());
        assert_eq!(read("SPEED_BUMP_DELAY_NS", "10000").map(|e| e.delay), Ok(Some(Nanos(10_000))));
        assert_eq!(read("SPEED_BUMP_DELAY_NS", " 0 ").map(|e| e.delay), Ok(Some(Nanos(0))));
        assert_eq!(read("SPEED_BUMP_FREQUENCY", "3").map(|e| e.frequency), Ok(NonZeroU64::new(3)));
        assert_eq!(
            read("SPEED_BUMP_START_MS", "5000").map(|e| e.start_after),
            Ok(Some(Duration::from_secs(5)))
        );
        assert_eq!(read("SPEED_BUMP_DURATION_MS", "0").map(|e| e.duration), Ok(Some(Duration::ZERO)));
    }

    #[test]
    fn refusals_name_the_variable_and_the_bound() {
        let said = |name, value| one(name, value).map_err(|error| error.to_string());
        for value in ["", "ten", "1.5", "10us", "0x10"] {
            let said = said("SPEED_BUMP_DELAY_NS", value);
            assert!(
                said.as_ref().is_err_and(
                    |text| text.contains("SPEED_BUMP_DELAY_NS") && text.contains("not an integer")
                ),
                "{said:?}"
            );
        }
        assert_eq!(
            said("SPEED_BUMP_FREQUENCY", "0"),
            Err("SPEED_BUMP_FREQUENCY: 0 is below the minimum 1".into())
        );
        assert_eq!(
            said("SPEED_BUMP_DELAY_NS", "-1"),
            Err("SPEED_BUMP_DELAY_NS: -1 is below the minimum 0".into())
        );
        assert_eq!(
            said("SPEED_BUMP_START_MS", "-5"),
            Err("SPEED_BUMP_START_MS: -5 is below the minimum 0".into())
        );
        assert_eq!(
            said("SPEED_BUMP_DELAY_NS", "10000000001"),
            Err("SPEED_BUMP_DELAY_NS: 10000000001 is above the maximum 10000000000".into())
        );
    }
}
