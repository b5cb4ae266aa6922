//! Which mutants are run: all, one by its name, or a few by turns.

use super::patch::Mutant;

/// Which mutants are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// All of them.
    All,
    /// The one of this name.
    Only(String),
    /// A group of at most `count`; as many turns as there are groups run all of them.
    Some {
        /// Mutants of a group: at least 1.
        count: usize,
        /// Names the group, modulo their number.
        turn: usize,
    },
}

impl Choice {
    /// Reads the arguments; `None` for what it does not know.
    pub(crate) fn parse(arguments: &[&str]) -> Option<Self> {
        match *arguments {
            [] => Some(Self::All),
            ["--only", name] => Some(Self::Only(name.to_owned())),
            ["--some", count, "--turn", turn] => {
                let count = count.parse().ok().filter(|count| *count > 0)?;
                Some(Self::Some { count, turn: turn.parse().ok()? })
            }
            _ => None,
        }
    }

    /// Returns those of `mutants` that it means.
    pub(super) fn of<'a>(&self, mutants: &'a [Mutant]) -> Result<&'a [Mutant], String> {
        match self {
            Self::All => Ok(mutants),
            Self::Only(name) => {
                let found = mutants.iter().position(|mutant| mutant.name == *name);
                let at = found.ok_or_else(|| format!("{name}: there is no such mutant"))?;
                Ok(&mutants[at..=at])
            }
            Self::Some { count, turn } => {
                let group_count = mutants.len().div_ceil(*count).max(1);
                Ok(mutants.chunks(*count).nth(turn % group_count).unwrap_or_default())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::patch::{Mutant, NamedTest};
    use super::Choice;
    use std::path::PathBuf;

    fn mutants(count: usize) -> Vec<Mutant> {
        let mutant = |number: usize| Mutant {
            name: format!("number-{number}"),
            path: PathBuf::new(),
            mistake: String::new(),
            test: NamedTest {
                package: String::new(),
                target: String::new(),
                filter: String::new(),
            },
            may_hang: false,
            files: Vec::new(),
        };
        (0..count).map(mutant).collect()
    }

    #[test]
    fn arguments_say_which_mutants_are_run() {
        assert_eq!(Choice::parse(&[]), Some(Choice::All));
        assert_eq!(Choice::parse(&["--only", "a"]), Some(Choice::Only("a".to_owned())));
        let some = Choice::Some { count: 4, turn: 17 };
        assert_eq!(Choice::parse(&["--some", "4", "--turn", "17"]), Some(some));
        for unknown in [
            &["--only"][..],
            &["--some", "4"],
            &["--some", "0", "--turn", "1"],
            &["--some", "4", "--turn", "-1"],
            &["--all"],
        ] {
            assert_eq!(Choice::parse(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn turns_after_one_another_run_each_mutant_once() {
        for (mutant_count, count) in [(30, 4), (8, 4), (3, 4), (7, 1)] {
            let mutants = mutants(mutant_count);
            let group_count = mutant_count.div_ceil(count);
            let mut run = Vec::new();
            for turn in 100..100 + group_count {
                let group = Choice::Some { count, turn }.of(&mutants).expect("a group");
                assert!((1..=count).contains(&group.len()));
                run.extend_from_slice(group);
            }
            run.sort_by_key(|mutant| mutants.iter().position(|other| other == mutant));
            assert_eq!(run, mutants);
        }
    }

    #[test]
    fn one_mutant_is_run_by_its_name() {
        let mutants = mutants(3);
        let only = |name: &str| Choice::Only(name.to_owned());
        assert_eq!(only("number-1").of(&mutants), Ok(&mutants[1..2]));
        let unknown = only("number-3").of(&mutants);
        assert_eq!(unknown, Err("number-3: there is no such mutant".to_owned()));
    }
}
