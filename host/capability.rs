//! What this machine lets kvtide do, and what it does not: the capability report.
//!
//! Whatever works, but less well than it could, is a [`Downgrade`], named once with its reason and
//! its effect. A pager collects them at open and an operator reads them in the report; nothing
//! falls back in silence.
//!
//! Called by the pager and the `kvtide` program.

pub use crate::mem::Downgrade;

use std::fmt;

/// The back ends in use and every downgrade.
///
/// Its `Display` is one line for each back end and one for each downgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapabilityReport {
    /// The device's back end.
    pub device: &'static str,
    /// The disk's back end; `None` without a disk tier.
    pub disk: Option<&'static str>,
    /// What is not as good as it could be, each once.
    pub downgrades: Vec<Downgrade>,
}

impl fmt::Display for CapabilityReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "device: {}", self.device)?;
        if let Some(disk) = self.disk {
            write!(formatter, "\ndisk: {disk}")?;
        }
        for Downgrade { what, why, effect } in &self.downgrades {
            write!(formatter, "\ndowngrade: {what}: {why}; {effect}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{CapabilityReport, Downgrade};

    #[test]
    fn each_downgrade_is_one_line_with_its_reason_and_effect() {
        let downgrade =
            Downgrade { what: "host slab", why: "no pages".to_owned(), effect: "slower reads" };
        let report =
            CapabilityReport { device: "cpu", disk: Some("uring"), downgrades: vec![downgrade] };
        assert_eq!(
            report.to_string(),
            "device: cpu\ndisk: uring\ndowngrade: host slab: no pages; slower reads"
        );
    }
}
