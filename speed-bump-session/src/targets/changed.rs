//! Targets of a session that change while it runs. Each target keeps its position, because reports and doses
//! refer to targets by position.

use std::collections::HashSet;

use super::{Exclusion, Pattern, Target, TargetIndex, TargetKind, Targets, rules::Rules};

/// Added and dropped targets.
#[derive(Clone, Debug)]
pub struct TargetChange {
    /// The added targets.
    pub add: Vec<Target>,
    /// The dropped targets, which keep their positions and their counts.
    pub drop: Vec<TargetIndex>,
}

impl Targets {
    /// The targets after a change. Added targets come last, and select only what no earlier target selects.
    /// Dropped targets select nothing.
    #[must_use]
    pub fn changed(&self, change: &TargetChange) -> Self {
        let mut targets = self.targets.clone();
        for index in &change.drop {
            if let Some(target) = targets.get_mut(index.0 as usize) {
                target.is_dropped = true;
            }
        }
        let ids = with_own_ids(targets.iter(), change.add.iter());
        targets.extend(change.add.iter().zip(ids).map(|(target, id)| Target { id, ..target.clone() }));
        Self::new(targets, self.exclusions.clone(), self.main_files.clone())
    }

    /// Targets of these lines, with an index of the lines for each kind.
    pub(super) fn new(targets: Vec<Target>, exclusions: Vec<Exclusion>, main_files: Vec<Pattern>) -> Self {
        let rules = |kind: TargetKind| Rules::new(kind, &targets, &exclusions, &main_files);
        let (python, native, usdt) =
            (rules(TargetKind::Python), rules(TargetKind::Native), rules(TargetKind::Usdt));
        Self { python, native, usdt, no_target: None, targets, exclusions, main_files }
    }

    /// The change from these targets to `wanted`. A target stays if `wanted` has one with the same kind,
    /// pattern and caller. Returns the change, and each target that stays, with the options of its new line.
    pub fn change_to(&self, wanted: &Self) -> (TargetChange, Vec<(TargetIndex, Target)>) {
        let mut left: Vec<(TargetIndex, &Target)> = self.iter().filter(|(_, of)| !of.is_dropped).collect();
        let (mut add, mut stay) = (Vec::new(), Vec::new());
        for (_, target) in wanted.iter() {
            let is_same = |(_, of): &(TargetIndex, &Target)| {
                (of.kind, &of.pattern, &of.caller) == (target.kind, &target.pattern, &target.caller)
            };
            match left.iter().position(is_same) {
                Some(position) => stay.push((left.remove(position).0, target.clone())),
                None => add.push(target.clone()),
            }
        }
        let drop = left.into_iter().map(|(index, _)| index).collect();
        (TargetChange { add, drop }, stay)
    }
}

/// The ids of targets that follow others. Each id is unique.
pub(super) fn with_own_ids<'t>(
    before: impl Iterator<Item = &'t Target>,
    behind: impl Iterator<Item = &'t Target>,
) -> Vec<String> {
    let mut ids: HashSet<String> = before.map(|target| target.id.clone()).collect();
    let ids = behind.map(|target| {
        let again = (2..).map(|number| format!("{} ({number})", target.id));
        let mut id = std::iter::once(target.id.clone()).chain(again);
        id.find(|id| ids.insert(id.clone())).unwrap_or_default()
    });
    ids.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::targets::ParsedTargets;

    fn parsed(text: &str) -> Targets {
        ParsedTargets::parse("t", text.as_bytes(), true).unwrap().decide(|_| false)
    }

    fn winner(targets: &Targets, name: &str) -> Option<u32> {
        targets.native_in("/a.so").select([name]).winner.map(|index| index.0)
    }

    #[test]
    fn targets_come_and_go_and_keep_their_places() {
        let before = parsed("native:*/a.so:f* id=own\nnative:*/a.so:g\n!native:*/a.so:fool\n");
        let wanted = parsed("native:*/a.so:h\nnative:*/a.so:g delay=3us\n!native:*/a.so:fool\n");
        let (change, stay) = before.change_to(&wanted);
        assert_eq!(change.drop, [TargetIndex(0)]);
        assert_eq!((stay.len(), stay[0].0), (1, TargetIndex(1)));
        assert_eq!(stay[0].1.delay, Some(crate::units::Nanos(3_000)));
        let after = before.changed(&change);
        assert_eq!(["f", "g", "h", "fool"].map(|name| winner(&after, name)), [None, Some(1), Some(2), None]);
        assert!(after.get(TargetIndex(0)).unwrap().is_dropped);

        // A dropped pattern that comes again is a new target.
        let (change, _) = after.change_to(&parsed("native:*/a.so:f* id=own\n"));
        let again = after.changed(&change);
        assert_eq!(["f", "g", "h", "fool"].map(|name| winner(&again, name)), [Some(3), None, None, None]);
        assert_eq!(again.get(TargetIndex(3)).unwrap().id, "own (2)");
        let (change, stay) = again.change_to(&parsed("native:*/a.so:f* id=own\n"));
        assert!(change.add.is_empty() && change.drop.is_empty() && stay.len() == 1);
    }

    #[test]
    fn python_targets_that_are_dropped_are_in_no_selector() {
        let before = parsed("*/a.py:f\n*/b.py:g\n");
        let change = TargetChange { add: Vec::new(), drop: vec![TargetIndex(0)] };
        let after = before.changed(&change);
        let selected = |targets: &Targets, file: &str, name: &str| {
            targets.python_in(file).select(name).winner.map(|index| index.0)
        };
        assert_eq!((selected(&after, "/a.py", "f"), selected(&after, "/b.py", "g")), (None, Some(1)));
        let alone = before.changed(&TargetChange { add: Vec::new(), drop: vec![TargetIndex(1)] });
        let [all, fewer] = [&before, &alone].map(|targets| super::super::selector::compile(targets).unwrap());
        assert!(fewer.len() < all.len());
    }
}
