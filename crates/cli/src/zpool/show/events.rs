//! `zpool events`

use tarnfs::control::{EventValue, PoolEvent, PoolEvents, Request};

use crate::session::{Outcome, Session, Stop, say};
use crate::text::getopt::Options;
use crate::text::names;
use crate::text::units::event_time;

const FOLLOW_STEP: std::time::Duration = std::time::Duration::from_millis(500);

#[derive(Default)]
struct Flags {
    verbose: bool,
    scripted: bool,
    follow: bool,
    clear: bool,
    pool: Option<String>,
}

fn parse(session: &mut Session<'_>, words: &[String]) -> Result<Flags, Stop> {
    let mut flags = Flags::default();
    let mut options = Options::new(words, "vHfc", &[]);
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))?.0 {
            'v' => flags.verbose = true,
            'H' => flags.scripted = true,
            'f' => flags.follow = true,
            _ => flags.clear = true,
        }
    }
    let mut operands = options.operands();
    if operands.len() > 1 {
        return Err(session.misuse("too many arguments"));
    }
    flags.pool = operands.pop();
    if let Some(name) = &flags.pool
        && names::check_pool(name, false).is_err()
    {
        return Err(session.misuse(format_args!("invalid pool name '{name}'")));
    }
    if flags.clear && (flags.pool.is_some() || flags.verbose || flags.scripted || flags.follow) {
        return Err(session.misuse("invalid options combined with -c"));
    }
    Ok(flags)
}

pub(in crate::zpool) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let flags = parse(session, words)?;
    let ask = |session: &mut Session<'_>, after| {
        let events = session.events(Request::PoolEvents(PoolEvents { after, clear: flags.clear }));
        events.map_err(|failure| session.failed("cannot get events", &failure))
    };
    if flags.clear {
        let events = ask(session, 0)?;
        say!(session, "cleared {} events", events.len());
        return Ok(0);
    }
    if !flags.scripted {
        say!(session, "{:<30} CLASS", "TIME");
    }
    let mut after = 0;
    loop {
        let mut events = ask(session, after)?;
        // Another daemon counts from 1 again.
        if events.is_empty() && after > 0 {
            let all = ask(session, 0)?;
            if all.last().is_none_or(|last| last.id < after) {
                (events, after) = (all, 0);
            }
        }
        for event in events.iter().filter(|event| event.id > after) {
            if flags.pool.as_ref().is_none_or(|pool| *pool == event.pool) {
                print(session, &flags, event);
            }
        }
        after = events.last().map_or(after, |event| event.id);
        if !flags.follow || !session.hand_over() {
            return Ok(0);
        }
        std::thread::sleep(FOLLOW_STEP);
    }
}

fn print(session: &mut Session<'_>, flags: &Flags, event: &PoolEvent) {
    let time = event_time(event.time.0, event.time.1, &session.zone);
    say!(session, "{time}{}{}", if flags.scripted { '\t' } else { ' ' }, event.class);
    if !flags.verbose {
        return;
    }
    say!(session, "        version = 0x0");
    say!(session, "        class = \"{}\"", event.class);
    say!(session, "        pool = \"{}\"", event.pool);
    say!(session, "        pool_guid = 0x{:x}", event.guid);
    for (name, value) in &event.details {
        match value {
            EventValue::Number(number) => say!(session, "        {name} = 0x{number:x}"),
            EventValue::Text(text) => say!(session, "        {name} = \"{text}\""),
        }
    }
    say!(session, "        time = 0x{:x} 0x{:x} ", event.time.0, event.time.1);
    say!(session, "        eid = 0x{:x}", event.id);
    say!(session, "");
}
