//! What a pool does while a workload runs: the lines of `zpool iostat POOL 1`, as its own tools print them.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::system;

/// After the pool was exported its next import is looked for this often.
const PAUSE: Duration = Duration::from_millis(500);

/// The program that prints, from one import of the pool to its export.
struct Printing<'a> {
    command: &'a Command,
    /// guards: the process that prints now
    child: Mutex<Option<Child>>,
    over: AtomicBool,
}

impl Printing<'_> {
    fn start(&self) -> Option<ChildStdout> {
        let mut command = Command::new(self.command.get_program());
        command.args(self.command.get_args());
        command.envs(self.command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut child = self.child.lock();
        if self.over.load(Ordering::Relaxed) {
            return None;
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut started = command.spawn().ok()?;
        let lines = started.stdout.take();
        *child = Some(started);
        lines
    }

    fn end_child(&self) {
        if let Some(mut child) = self.child.lock().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Hands out lines until it is over. A caller that empties its caches exports the pool, which ends the program.
    fn hand_out(&self, mounted: &Path, each: &(dyn Fn(&str) + Sync)) {
        while !self.over.load(Ordering::Relaxed) {
            if system::is_mount_point(mounted)
                && let Some(lines) = self.start()
            {
                BufReader::new(lines).lines().map_while(Result::ok).for_each(|line| each(&line));
                self.end_child();
            }
            std::thread::park_timeout(PAUSE);
        }
    }
}

/// Ends the program, also if the work panics.
struct Ends<'a, 'b>(&'a Printing<'b>, std::thread::Thread);

impl Drop for Ends<'_, '_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
        self.0.end_child();
        self.1.unpark();
    }
}

/// Does `work`, and calls `each` with what `command` prints meanwhile, as long as something is mounted on `mounted`.
pub fn during<T>(command: &Command, mounted: &Path, each: &(dyn Fn(&str) + Sync), work: impl FnOnce() -> T) -> T {
    let printing = Printing { command, child: Mutex::new(None), over: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| printing.hand_out(mounted, each));
        let _ends = Ends(&printing, reader.thread().clone());
        work()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn shell(words: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", words]).env("SAID", "pool");
        command
    }

    fn lines_of(command: &Command, mounted: &Path, milliseconds: u64) -> Vec<String> {
        let lines = Mutex::new(Vec::new());
        let began = Instant::now();
        during(command, mounted, &|line| lines.lock().push(line.to_owned()), || {
            std::thread::sleep(Duration::from_millis(milliseconds));
        });
        assert!(began.elapsed() < Duration::from_millis(milliseconds + 5000), "the program outlives the work");
        lines.into_inner()
    }

    #[test]
    fn lines_come_until_the_work_is_done() {
        assert_eq!(lines_of(&shell("echo $SAID; exec sleep 60"), Path::new("/"), 300), ["pool"]);
        assert_eq!(lines_of(&shell("echo never"), Path::new("/no/mount"), 50), Vec::<String>::new());
    }

    /// An export ends the program; the next import has it again.
    #[test]
    fn it_comes_back_with_the_pool() {
        let lines = lines_of(&shell("echo again"), Path::new("/"), 1300);
        assert!((2..=3).contains(&lines.len()), "{lines:?}");
    }
}
