//! The journal of a run: what its episodes came to, so that a run that was killed goes on where it stood.
//!
//! A run is a function of its plan, and what happens between two episodes costs little. So nothing of a run's state is saved. A run
//! that goes on begins anew, asks the journal for each episode before it simulates it, and takes what the journal knows; its
//! bytes are those of an undisturbed run because it is one. What has no episodes (job fidelity, `--full` of several jobs)
//! begins anew and takes nothing.
//!
//! Life cycle: [`Journal::begin`] writes what was asked for; [`Journal::plan`] writes what the plan was made from, or compares it
//! with what the file says; then answers follow questions in the order of the calendar, each written as soon as it is known.
//! [`Journal::open`] reads a file that a killed run has left, and drops what was torn. Who holds it holds a lock on the
//! file. Whoever runs to the end removes the file.
//!
//! Invariants: a question that comes again has the same number; rows of an episode come before its answer, and count only with
//! it. Failure modes: a file that is none or of another plan ([`InputError`]), an answer to another question ([`Failure::Run`]:
//! something decides by chance), a disk that takes no more (the run goes on, and [`Journal::trouble`] says why it is
//! not kept).

mod episode;
mod file;
mod stored;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use windtunnel_plan::error::{Failure, InputError, Why};
use windtunnel_plan::inputs::Input;

use self::file::File;
pub(crate) use self::stored::{Stored, structures};
use crate::table::{Batch, TableSink};

/// What a part of the file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// What was asked for.
    Request = 1,
    /// What the plan was made from.
    Plan = 2,
    /// Ideal times of all jobs.
    Ideal = 3,
    /// Rows of an episode that is not answered yet.
    Rows = 4,
    /// What became of an episode.
    Episode = 5,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Request, Self::Plan, Self::Ideal, Self::Rows, Self::Episode];

    fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Whether what came before it counts from then on.
    fn concludes(self) -> bool {
        self != Self::Rows
    }
}

/// What the bytes of a result depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// SHA-256 of the scenario and its inputs.
    pub sha256: String,
    /// The files and sheets that it names.
    pub inputs: Vec<Input>,
    /// The engine's build.
    pub build: String,
}

stored::structures! {
    Made { sha256, inputs, build }
}

/// The journal of one run.
#[derive(Debug)]
pub struct Journal {
    place: String,
    request: String,
    file: Mutex<File>,
}

impl Journal {
    /// A journal in a fresh file at `path`, of a run that was asked for as `request` says; `None` if another run holds that.
    ///
    /// # Errors
    /// What the system says of the file.
    pub fn begin(path: &Path, request: &str) -> std::io::Result<Option<Self>> {
        let Some(mut file) = File::create(path)? else { return Ok(None) };
        file.put(Kind::Request, request.as_bytes());
        let place = path.display().to_string();
        Ok(Some(Self { place, request: request.to_owned(), file: Mutex::new(file) }))
    }

    /// The journal that a run has left at `path`.
    ///
    /// # Errors
    /// [`InputError`] if there is none, if it is no journal, or if a run holds it.
    pub fn open(path: &Path) -> Result<Self, InputError> {
        let place = path.display().to_string();
        let mut file = match File::open(path) {
            Ok(Some(file)) => file,
            Ok(None) => {
                return Err(InputError::new(&place, "another run writes it")
                    .hint("wait for it, or stop it first".to_owned()));
            }
            Err(error) => {
                return Err(InputError::new(&place, format!("it cannot be read: {error}")).hint(
                    "a run keeps its journal beside its folder until it ends; run the scenario if there is none"
                        .to_owned(),
                ));
            }
        };
        let request = match file.take() {
            Some((Kind::Request, bytes)) => String::from_utf8(bytes).ok(),
            _ => None,
        };
        let Some(request) = request else {
            return Err(InputError::new(&place, "expected the journal of a run, found something else")
                .hint("give `--resume` the folder that the run was to have".to_owned()));
        };
        Ok(Self { place, request, file: Mutex::new(file) })
    }

    /// What the run was asked for.
    pub fn request(&self) -> &str {
        &self.request
    }

    /// Why a run that goes on with it begins at its beginning all the same; `None` where it knows of episodes that have ended. `whole`:
    /// if the run is one simulation from its first job to its last, of which nothing is kept.
    pub fn begins_anew(&self, whole: bool) -> Option<String> {
        let why = match self.lock().episodes() {
            _ if whole => {
                "`--full` of several jobs is one simulation from end to end, of which no journal keeps anything"
            }
            0 => "no episode of the run had ended when it was stopped",
            _ => return None,
        };
        Some(format!("`{}`: {why}; the run goes on from its beginning", self.place))
    }

    /// Notes what the plan was made from.
    ///
    /// # Errors
    /// [`InputError`] if the run that left the file had another plan.
    pub fn plan(&self, made: &Made) -> Result<(), InputError> {
        let mut file = self.lock();
        let Some((_, bytes)) = file.take() else {
            let mut bytes = Vec::new();
            made.store(&mut bytes);
            file.put(Kind::Plan, &bytes);
            return Ok(());
        };
        let before = Made::load(&mut bytes.as_slice());
        let wrong = |what: String| {
            Err(InputError::new(&self.place, what)
                .hint("run the scenario anew, without `--resume`".to_owned()))
        };
        match before {
            None => wrong("it is the journal of another version".to_owned()),
            Some(before) if before.build != made.build => wrong(format!(
                "the run was begun by build `{}` of the engine, this is `{}`: their figures may differ",
                before.build, made.build
            )),
            Some(before) if before == *made => Ok(()),
            Some(before) => {
                let other = made.inputs.iter().find(|input| !before.inputs.contains(input));
                let other = other.or_else(|| before.inputs.iter().find(|input| !made.inputs.contains(input)));
                let what = other.map_or("the scenario", |(name, _)| name);
                wrong(format!("`{what}` has changed since the run was begun"))
            }
        }
    }

    /// Why nothing is kept any more, once.
    pub fn trouble(&self) -> Option<String> {
        let trouble = self.lock().trouble()?;
        Some(format!("`{}`: {trouble}; should this run be killed, it cannot go on from here", self.place))
    }

    /// The ideal times, if they are known.
    pub(crate) fn ideal<T: Stored>(&self) -> Result<Option<T>, Failure> {
        let Some((kind, bytes)) = self.lock().take() else { return Ok(None) };
        let answer = T::load(&mut bytes.as_slice()).filter(|_| kind == Kind::Ideal);
        answer.map(Some).ok_or_else(|| self.other())
    }

    /// Keeps the ideal times.
    pub(crate) fn keep_ideal(&self, times: &impl Stored) {
        let mut bytes = Vec::new();
        times.store(&mut bytes);
        self.lock().put(Kind::Ideal, &bytes);
    }

    /// The answer to that question, if it is known; rows that came with it go to `sink`.
    fn answer<T: Stored>(&self, question: u32, sink: &mut dyn TableSink) -> Result<Option<T>, Failure> {
        loop {
            let Some((kind, bytes)) = self.lock().take() else { return Ok(None) };
            let mut input = bytes.as_slice();
            match kind {
                Kind::Rows => {
                    let rows: Option<(&'static str, Batch)> = Stored::load(&mut input);
                    let (table, batch) = rows.ok_or_else(|| self.other())?;
                    sink.rows(table, batch).map_err(Failure::sink)?;
                }
                Kind::Episode => {
                    let asked = u32::load(&mut input).filter(|&asked| asked == question);
                    return asked.and_then(|_| T::load(&mut input)).map(Some).ok_or_else(|| self.other());
                }
                Kind::Request | Kind::Plan | Kind::Ideal => return Err(self.other()),
            }
        }
    }

    /// Keeps the answer to that question, and with it the rows since the last one.
    fn keep(&self, question: u32, answer: &[u8]) {
        self.lock().put(Kind::Episode, &[&question.to_le_bytes(), answer].concat());
    }

    /// Keeps rows of the episode that is simulated.
    pub(crate) fn keep_rows(&self, table: &'static str, batch: &Batch) {
        let mut bytes = Vec::new();
        table.store(&mut bytes);
        batch.store(&mut bytes);
        self.lock().put(Kind::Rows, &bytes);
    }

    fn lock(&self) -> MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn other(&self) -> Failure {
        Failure::Run(
            Why::Parted,
            format!(
                "`{}`: the run that left it took another way\n\nhint: a scheduler or placement of one's own that decides by chance \
             or by the clock cannot be gone through again; run the scenario anew, without `--resume`",
                self.place
            ),
        )
    }
}

/// Keeps rows as they go on to the sink.
pub(crate) struct Kept<'a> {
    /// What keeps them; `None`: nothing.
    pub journal: Option<&'a Journal>,
    /// Where they go.
    pub inner: &'a mut dyn TableSink,
}

impl TableSink for Kept<'_> {
    fn rows(&mut self, table: &'static str, batch: Batch) -> Result<(), String> {
        if let Some(journal) = self.journal {
            journal.keep_rows(table, &batch);
        }
        self.inner.rows(table, batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Column, Discard};

    /// Keeps rows.
    #[derive(Default)]
    struct Rows(Vec<(&'static str, Batch)>);

    impl TableSink for Rows {
        fn rows(&mut self, table: &'static str, batch: Batch) -> Result<(), String> {
            self.0.push((table, batch));
            Ok(())
        }
    }

    #[test]
    fn answers_come_back_in_order_and_to_their_own_questions() {
        let path = std::env::temp_dir().join(format!("windtunnel-journal-{}", std::process::id()));
        let batch = Batch::default().with("n", Column::U64(vec![3, 4]));
        let made = Made { sha256: "ab".to_owned(), inputs: Vec::new(), build: "1".to_owned() };
        {
            let journal = Journal::begin(&path, "asked").expect("a file can be made").expect("nobody has it");
            journal.plan(&made).expect("there was none before");
            journal.keep_rows("rows", &batch);
            journal.keep(7, &5_u64.to_le_bytes());
            journal.keep(8, &6_u64.to_le_bytes());
            // Rows without an answer do not count.
            journal.keep_rows("rows", &batch);
            assert!(Journal::begin(&path, "another").expect("a file").is_none(), "it is held");
        }
        let journal = Journal::open(&path).expect("it is one");
        assert_eq!(journal.request(), "asked");
        assert!(journal.plan(&Made { build: "2".to_owned(), ..made.clone() }).is_err());
        drop(journal);
        let journal = Journal::open(&path).expect("it is one");
        journal.plan(&made).expect("the same plan");
        let mut rows = Rows::default();
        assert_eq!(journal.answer(7, &mut rows), Ok(Some(5_u64)));
        assert_eq!(rows.0, [("rows", batch)]);
        let other = journal.answer::<u64>(9, &mut Discard);
        assert!(matches!(other, Err(Failure::Run(Why::Parted, _))), "{other:?}");
        assert_eq!(journal.answer::<u64>(10, &mut Discard), Ok(None));
        drop(journal);
        std::fs::remove_file(path).expect("it is there");
    }
}
