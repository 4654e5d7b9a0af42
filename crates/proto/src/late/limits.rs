//! All internal timeouts, from one number.

use std::fmt;
use std::time::Duration;

use super::format::time;
use super::Usual;

/// Nobody is looked for later than this, however late a step may be: a user wants to know what he waits for.
const MOST_PATIENCE: Duration = Duration::from_secs(10);
/// A lost packet of an introduction is sent again after one second, then after three.
const LEAST_GREETING: Duration = Duration::from_secs(3);
const MOST_DISPUTE: Duration = Duration::from_secs(1);
/// How long a wire may be silent where nobody has set a deadline.
const SILENCE: Duration = Duration::from_secs(300);

/// How long what may take. Only [`Limits::derive`] makes them, so they always fit together:
/// `answer <= notice`, `notice + answer <= fail <= most`, and a silent wire outlives every deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From here on the others are asked what holds the operation up.
    pub notice: Duration,
    /// How long a rank that is asked may take to answer.
    pub answer: Duration,
    /// From here on the operation has failed.
    pub fail: Duration,
    /// How long ranks that disagree may take to say what they have called.
    pub dispute: Duration,
    /// How long an introduction may take.
    pub greet: Duration,
    /// After so long without an acknowledgement, a wire counts as cut.
    pub silence: Duration,
}

impl Limits {
    /// Derives them all.
    ///
    /// `deadline` is how late a step may be, `None` if the user has not said; `usual` how long such an operation
    /// takes, `None` if that is not known yet; `most` the upper limit, which is torch's own timeout.
    pub fn derive(deadline: Option<Duration>, usual: Option<Usual>, most: Duration) -> Limits {
        let late = deadline.unwrap_or(most).min(most);
        let usually = usual.map_or(Duration::ZERO, |u| u.median);
        let fail = late.saturating_add(usually).min(most);
        let patience = (late / 4).min(MOST_PATIENCE);
        let slack = usual.map_or(patience, |u| u.spread.saturating_mul(8).clamp(patience / 2, patience));
        let notice = usually.saturating_add(slack).min(fail - late / 2);
        Limits {
            notice,
            answer: patience / 2,
            fail,
            dispute: patience.min(MOST_DISPUTE),
            greet: patience.max(LEAST_GREETING),
            silence: deadline.map_or(SILENCE, |d| d.saturating_mul(2)).max(LEAST_GREETING),
        }
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [notice, answer, fail, silence] = [self.notice, self.answer, self.fail, self.silence].map(time);
        write!(
            f,
            "after {notice} beyond its usual time the others are asked what holds a call up, they have {answer} to answer, \
             after {fail} it fails; a wire that is silent for {silence} is cut"
        )
    }
}
