//! Claims of the paper held against what was measured, each by itself and those of an item together.
//!
//! A check makes one comparison or several: an estimate of a mean over runs, held against the band that counts as reproduced.
//! A comparison *holds* when the whole 95 % interval lies in the band, is *outside* when the mean is shown to lie beyond an end of it, and *refuted*
//! when it is shown to be the contrary of the claim; else it is *not decided*.
//!
//! Of many comparisons some leave their bands by chance. So those of an item are judged together ([`correct`]) by Holm's
//! step-down procedure (*Scandinavian Journal of Statistics* 6, 1979), which holds however they depend on each other, as
//! comparisons of the same runs do, and finds whatever Bonferroni's finds: the chance that an item has any comparison falsely called
//! refuted is 5 % at most, and so is that of one falsely called outside. That all hold takes no correction: if one claim is
//! false, all hold only when the one comparison with it errs (an intersection-union test, Berger 1982).

use flow_report::Estimate;
use serde::Serialize;

/// One claim of the paper held against what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Quantity that is compared.
    pub what: String,
    /// Value that the paper states or its figure shows.
    pub paper: String,
    /// Band that counts as reproduced.
    pub band: String,
    /// Value that was measured here.
    pub ours: String,
    /// The value lies in the band.
    pub holds: bool,
    /// By how much it does not.
    pub miss: Option<String>,
    /// The measurement contradicts the paper, by more than chance.
    pub refuted: bool,
    /// So little was measured that it decides nothing.
    pub undecided: bool,
    /// The claim holds at some loads and is contradicted at others, of which the paper names none.
    pub by_load: bool,
    /// The numbers that are compared, if it is numbers.
    #[serde(skip)]
    pub numbers: Option<Numbers>,
    /// The comparisons that it makes; nothing for what chance has no part in.
    #[serde(skip)]
    pub(crate) comparisons: Vec<Comparison>,
    /// The comparisons are of the same claim at several loads, of which the paper names none.
    #[serde(skip)]
    pub(crate) is_by_load: bool,
}

/// The numbers of a check, in one unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numbers {
    /// Both ends of the band; those that are not finite are open.
    pub band: (f64, f64),
    /// The value that the paper states.
    pub paper: Option<f64>,
    /// The value that was measured here.
    pub ours: Option<Estimate>,
}

/// An estimate held against a band.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Name beside the other comparisons of its check, as of a load.
    pub name: String,
    /// Value that was measured here.
    pub ours: String,
    /// The numbers that are compared.
    pub numbers: Option<Numbers>,
    /// The whole interval lies in the band.
    pub is_inside: bool,
    /// The p-value of a mean that lies in the band; 1 where nothing speaks against that.
    pub p_outside: f64,
    /// The p-value of a mean that is not the contrary of the claim; 1 where nothing speaks against that.
    pub p_contrary: f64,
    /// By how much it misses, where the mean is beyond the band.
    pub miss: Option<String>,
    /// Reason why nothing is decided, where nothing is.
    pub unclear: String,
}

/// How one comparison came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Holds,
    Undecided,
    Outside,
    Refuted,
}

/// The chance of an item that any of its comparisons is falsely called refuted, and the same for outside.
pub(crate) const LEVEL: f64 = 0.05;

/// Judges the checks of an item together, in the place of each by itself.
pub fn correct(checks: &mut [Check]) {
    let p_values = |of: fn(&Comparison) -> f64| -> Vec<f64> {
        let all = checks.iter().flat_map(|it| &it.comparisons);
        all.map(of).collect()
    };
    let contrary = holm(&p_values(|it| it.p_contrary));
    let outside = holm(&p_values(|it| it.p_outside));
    let outcome = |(refuted, outside)| match (refuted, outside) {
        (true, _) => Some(Outcome::Refuted),
        (_, true) => Some(Outcome::Outside),
        _ => None,
    };
    let mut shown = contrary.into_iter().zip(outside).map(outcome);
    let together = p_values(|_| 0.0).len();
    for check in checks {
        let each = shown.by_ref().take(check.comparisons.len());
        let each: Vec<_> = each.collect();
        check.settle(&each, together);
    }
}

/// Returns of which p-values Holm's procedure rejects the hypotheses at [`LEVEL`]: in rising order, as long as each is
/// at most the level by the number of those that are left.
fn holm(p_values: &[f64]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut rejected = vec![false; p_values.len()];
    for (before, place) in order.iter().enumerate() {
        if p_values[*place] > LEVEL / (p_values.len() - before) as f64 {
            break;
        }
        rejected[*place] = true;
    }
    rejected
}

impl Check {
    /// A check that holds unless `miss` says by how much it does not, whatever else there is.
    pub fn new(what: &str, paper: &str, band: &str, ours: String, miss: Option<String>) -> Self {
        Self {
            what: what.to_owned(),
            paper: paper.to_owned(),
            band: band.to_owned(),
            ours,
            holds: miss.is_none(),
            miss,
            refuted: false,
            undecided: false,
            by_load: false,
            numbers: None,
            comparisons: Vec::new(),
            is_by_load: false,
        }
    }

    /// A check all of whose comparisons have to hold; the first of those that came out worst speaks for it.
    pub fn of_all(what: &str, paper: &str, band: &str, comparisons: Vec<Comparison>) -> Self {
        let check = Self::new(what, paper, band, String::new(), None);
        Self {
            comparisons,
            ..check
        }
        .alone()
    }

    /// A check of one claim at several loads, of which the paper names none.
    pub fn over_loads(what: &str, paper: &str, band: &str, comparisons: Vec<Comparison>) -> Self {
        let check = Self::new(what, paper, band, String::new(), None);
        Self {
            comparisons,
            is_by_load: true,
            ..check
        }
        .alone()
    }

    /// Returns this check with its numbers: the band, the paper's value and ours.
    pub fn with_numbers(self, band: (f64, f64), paper: Option<f64>, ours: f64) -> Self {
        let ours = Some(Estimate {
            mean: ours,
            half_width: None,
            runs: 1,
        });
        Self {
            numbers: Some(Numbers { band, paper, ours }),
            ..self
        }
    }

    /// A check of which too little was measured, for the reason `why`.
    pub fn undecided(what: &str, paper: &str, band: &str, why: &str) -> Self {
        let miss = Some(why.to_owned());
        Self {
            undecided: true,
            ..Self::new(what, paper, band, String::new(), miss)
        }
    }

    /// `holds`, or how it does not, and by how much.
    pub fn verdict(&self) -> String {
        match &self.miss {
            None => "holds".to_owned(),
            Some(miss) if self.refuted => format!("refuted: {miss}"),
            Some(miss) if self.by_load => format!("depends on load: {miss}"),
            Some(miss) if self.undecided => format!("not decided: {miss}"),
            Some(miss) => format!("outside: {miss}"),
        }
    }

    /// Judged by itself.
    fn alone(mut self) -> Self {
        correct(std::slice::from_mut(&mut self));
        self
    }

    /// Draws its verdict from what is shown of each comparison, judged among `together`.
    fn settle(&mut self, shown: &[Option<Outcome>], together: usize) {
        let outcome = |(it, shown): (&Comparison, &Option<Outcome>)| {
            let else_it = if it.is_inside {
                Outcome::Holds
            } else {
                Outcome::Undecided
            };
            shown.unwrap_or(else_it)
        };
        let each = self.comparisons.iter().zip(shown);
        let outcomes: Vec<Outcome> = each.map(outcome).collect();
        let Some(worst) = outcomes.iter().copied().max() else {
            return;
        };
        let speaker = outcomes.iter().position(|it| *it == worst).unwrap_or(0);
        let of = &self.comparisons[speaker];
        self.numbers = of.numbers;
        self.ours = match &*of.name {
            "" => of.ours.clone(),
            name => format!("{} ({name})", of.ours),
        };
        (self.refuted, self.by_load) = (worst == Outcome::Refuted, false);
        self.undecided = worst == Outcome::Undecided;
        self.holds = worst == Outcome::Holds;
        self.miss = match worst {
            Outcome::Holds => None,
            Outcome::Undecided => Some(of.why_unclear(together)),
            Outcome::Outside | Outcome::Refuted => of.miss.clone(),
        };
        if self.is_by_load {
            self.settle_by_load(&outcomes);
        }
    }

    fn settle_by_load(&mut self, outcomes: &[Outcome]) {
        let names = |is: fn(Outcome) -> bool| -> String {
            let each = self.comparisons.iter().zip(outcomes);
            let names = each.filter(|(_, outcome)| is(**outcome));
            let names: Vec<&str> = names.map(|(it, _)| &*it.name).collect();
            names.join(", ")
        };
        let [holds, contradicted, unclear] = [
            names(|it| it == Outcome::Holds),
            names(|it| it == Outcome::Refuted),
            names(|it| it != Outcome::Holds && it != Outcome::Refuted),
        ];
        if self.refuted && !holds.is_empty() {
            (self.refuted, self.by_load) = (false, true);
            self.miss = Some(format!(
                "holds at {holds}, is contradicted at {contradicted}"
            ));
        } else if self.refuted && !unclear.is_empty() {
            (self.refuted, self.undecided) = (false, true);
            self.miss = Some(format!(
                "contradicted at {contradicted}, unclear at {unclear}"
            ));
        }
        let each = self.comparisons.iter();
        let each: Vec<String> = each
            .map(|it| format!("{} at {}", it.ours, it.name))
            .collect();
        self.ours = each.join(", ");
    }
}

impl Comparison {
    /// A comparison of nothing, for that reason.
    pub fn unclear(name: &str, numbers: Option<Numbers>, why: &str) -> Self {
        Self {
            name: name.to_owned(),
            ours: String::new(),
            numbers,
            is_inside: false,
            p_outside: 1.0,
            p_contrary: 1.0,
            miss: None,
            unclear: why.to_owned(),
        }
    }

    fn why_unclear(&self, together: usize) -> String {
        match &self.miss {
            Some(miss) if self.p_outside <= LEVEL => {
                format!("{miss}, which may be by chance among {together} comparisons")
            }
            _ => self.unclear.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
