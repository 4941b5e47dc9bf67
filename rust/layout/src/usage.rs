//! Disk context caching's arithmetic: hit and miss tokens in whole units.

/// What one prompt hits, as an API bills it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens served from the cache: a multiple of the unit, at most `prompt_tokens - 1`.
    pub hit_tokens: u32,
    /// The rest. At least 1 in a prompt that is not empty.
    pub miss_tokens: u32,
    /// The first unit of the prompt that differs from what is stored; `None` when all of it is
    /// stored.
    pub first_difference: Option<u32>,
}

/// Usage of a prompt of `prompt_tokens`, of which the first `matched` are stored and the first
/// `usable` can be used, in units of `unit` tokens (a unit of 0 counts as 1):
/// `hit = unit * floor(min(prompt_tokens - 1, usable) / unit)`.
pub fn usage(prompt_tokens: u32, matched: u32, usable: u32, unit: u32) -> Usage {
    let unit = unit.max(1);
    let hit_tokens = prompt_tokens.saturating_sub(1).min(usable) / unit * unit;
    Usage {
        prompt_tokens,
        hit_tokens,
        miss_tokens: prompt_tokens - hit_tokens,
        first_difference: (matched < prompt_tokens).then_some(matched / unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_whole_units_and_leave_a_token() {
        for unit in [64, 128] {
            for prompt in [0, 1, unit - 1, unit, unit + 1, 2 * unit, 2 * unit + 1, 1000] {
                let all = usage(prompt, prompt, prompt, unit);
                assert_eq!(all.hit_tokens, unit * (prompt.saturating_sub(1) / unit));
                assert_eq!(all.hit_tokens + all.miss_tokens, prompt);
                assert_eq!(all.first_difference, None);
                assert_eq!(usage(prompt, 0, 0, unit).hit_tokens, 0, "zero is a value");
            }
        }
    }

    #[test]
    fn the_plan_caps_the_hit() {
        let capped = usage(1000, 640, 512, 128);
        assert_eq!((capped.hit_tokens, capped.miss_tokens), (512, 488));
        assert_eq!(capped.first_difference, Some(5), "640 tokens are stored");
    }

    #[test]
    fn the_papers_prefix() {
        // a prefix of 32K tokens in 500 calls: one miss, then 499 hits
        let cold = usage(32_769, 0, 0, 64);
        let warm = usage(32_769, 32_768, 32_768, 64);
        assert_eq!((cold.hit_tokens, warm.hit_tokens), (0, 32_768));
    }
}
