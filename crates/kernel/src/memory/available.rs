//! How much memory this process may still take, as the system says. What a run comes to does not depend on it: it ends one that
//! would be killed.

use std::fs;

/// Bytes that this process may still take: the least of what the machine has, what its control group may have, and what
/// the limit of its address space leaves. `None` where nobody says.
pub fn available() -> Option<u64> {
    [machine(), group(), address_space()].into_iter().flatten().min()
}

/// `MemAvailable` and free swap.
fn machine() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    Some(kilobytes(&text, "MemAvailable:")?.saturating_add(kilobytes(&text, "SwapFree:").unwrap_or(0)))
}

/// The bytes on a line such as `MemAvailable:   123 kB`.
fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1_024)
}

fn group() -> Option<u64> {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let of = |most: &str, used: &str, stat: &str, kept: &str| {
        let used =
            number(used)?.saturating_sub(fs::read_to_string(stat).map_or(0, |text| cached(&text, kept)));
        Some(number(most)?.saturating_sub(used))
    };
    let folder = "/sys/fs/cgroup/memory";
    let new = of(
        &format!("{folder}.max"),
        &format!("{folder}.current"),
        &format!("{folder}.stat"),
        "inactive_file",
    );
    new.or_else(|| {
        of(
            &format!("{folder}/memory.limit_in_bytes"),
            &format!("{folder}/memory.usage_in_bytes"),
            &format!("{folder}/memory.stat"),
            "total_inactive_file",
        )
    })
}

/// Bytes of files that are kept as long as nobody needs the room: the line `key 123` of a group's statistics.
fn cached(text: &str, key: &str) -> u64 {
    let of = |line: &str| line.strip_prefix(key)?.trim().parse().ok();
    text.lines().find_map(of).unwrap_or(0)
}

fn address_space() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let most = soft.split_whitespace().next()?.parse::<u64>().ok()?;
    let status = fs::read_to_string("/proc/self/status").ok()?;
    Some(most.saturating_sub(kilobytes(&status, "VmSize:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This machine says what it has, and it is neither nothing nor absurd.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_machine_says_what_it_has() {
        let found = available().expect("Linux says it");
        assert!((1 << 20..1 << 50).contains(&found), "{found}");
    }

    #[test]
    fn a_line_of_meminfo_is_read() {
        let text = "MemTotal:       100 kB\nMemAvailable:   7 kB\n";
        assert_eq!(kilobytes(text, "MemAvailable:"), Some(7 * 1_024));
        assert_eq!(kilobytes(text, "SwapFree:"), None);
    }

    #[test]
    fn files_that_are_only_kept_count_as_free() {
        let text = "anon 5\nfile 900\ninactive_file 700\nactive_file 200\n";
        assert_eq!(cached(text, "inactive_file"), 700);
        assert_eq!(cached(text, "total_inactive_file"), 0);
    }
}
