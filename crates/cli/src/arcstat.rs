//! `tarn arcstat`: what the caches of imported pools have and have done.

use std::collections::BTreeMap;

use tarnfs::control::{PoolSelect, Request, Wanted};

use crate::session::{Outcome, Session, say};
use crate::text::getopt::Options;
use crate::text::units::nice_number;
use crate::zpool::spec::pools;

pub(crate) const USAGE: &str = "\tarcstat [-j] [pool] [interval [count]]\n";
pub(crate) const NOTES: &str = "
Hits and misses of each pool's cache in memory and of its cache devices (l2), how
much of reads they answered, and how much they hold; iohits: reads of what was being read already; ahead: blocks read before they were asked for, and how many of
those that were used or had to go were used; with an interval, what was
done since the line before. -j: all counters as JSON, by OpenZFS's names.
";

type Counters = BTreeMap<String, u64>;

pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "j", &[]);
    let mut is_json = false;
    for option in options.by_ref() {
        option.map_err(|wrong| session.misuse(wrong))?;
        is_json = true;
    }
    let mut operands = options.operands();
    let mut interval = pools::take_interval(session, &mut operands)?;
    if operands.len() > 1 {
        return Err(session.misuse("too many arguments"));
    }
    let mut before: Option<BTreeMap<String, Counters>> = None;
    loop {
        let select = PoolSelect { name: operands.first().cloned(), properties: Wanted::Only(Vec::new()) };
        let what = operands.first().map_or_else(|| "cannot look at the caches".to_owned(), |name| format!("cannot open '{name}'"));
        let answer = session.counters(Request::PoolCache(select)).map_err(|failure| session.failed(&what, &failure))?;
        let all: BTreeMap<String, Counters> = answer.into_iter().map(|(pool, counters)| (pool, counters.into_iter().collect())).collect();
        if !is_json && before.is_none() {
            say!(session, "{:<16} {:>7} {:>7} {:>7} {:>5} {:>5} {:>7} {:>7} {:>7} {:>7} {:>5} {:>7} {:>7} {:>5} {:>7}", "pool", "hits", "iohits", "misses", "hit%", "ioh%", "size", "mru", "mfu", "ahead", "used%", "l2hits", "l2miss", "l2hit%", "l2size");
        }
        if is_json {
            say!(session, "{}", serde_json::json!({ "pools": all }));
        } else {
            all.iter().for_each(|(pool, now)| line(session, pool, now, before.as_ref().and_then(|before| before.get(pool))));
        }
        before = Some(all);
        if !pools::next_round(session, &mut interval) {
            return Ok(0);
        }
    }
}

fn line(session: &mut Session<'_>, pool: &str, now: &Counters, before: Option<&Counters>) {
    let get = |name: &str| now.get(name).copied().unwrap_or(0);
    let since = |name: &str| get(name).saturating_sub(before.and_then(|before| before.get(name).copied()).unwrap_or(0));
    let percent = |hits: u64, misses: u64| if hits + misses == 0 { 0 } else { hits * 100 / (hits + misses) };
    let (hits, joined, misses, second_hits, second_misses) = (since("hits"), since("iohits"), since("misses"), since("l2_hits"), since("l2_misses"));
    let (ahead, used) = (since("predictive_prefetch"), since("demand_hit_predictive_prefetch") + since("demand_iohit_predictive_prefetch"));
    say!(
        session,
        "{pool:<16} {hits:>7} {joined:>7} {misses:>7} {:>5} {:>5} {:>7} {:>7} {:>7} {ahead:>7} {:>5} {second_hits:>7} {second_misses:>7} {:>6} {:>7}",
        percent(hits, joined + misses),
        percent(joined, hits + misses),
        nice_number(get("size")),
        nice_number(get("mru_size")),
        nice_number(get("mfu_size")),
        percent(used, since("tarn_prefetch_unused")),
        percent(second_hits, second_misses),
        nice_number(get("l2_asize")),
    );
}
