//! Token ids from any integer buffer.

use super::IdentityError;

/// An integer type that tokenizers and tensors hold token ids in.
pub trait Token: Copy + Into<i128> {
    /// The id as u32, or `None` when it is negative or above `u32::MAX`.
    fn id(self) -> Option<u32>;
}

macro_rules! token {
    ($($type:ty),*) => {$(
        impl Token for $type {
            #[inline]
            fn id(self) -> Option<u32> {
                u32::try_from(self).ok()
            }
        }
    )*};
}
token!(u8, u16, u32, i32, i64, u64);

/// The ids as the u32 that the chain hashes.
///
/// # Errors
/// [`IdentityError::Token`] with index and value of the first id that is negative or above
/// 4,294,967,295.
pub fn token_ids<T: Token>(tokens: &[T]) -> Result<Vec<u32>, IdentityError> {
    let mut all = true; // a flag instead of an early end: the loop then runs in SIMD lanes
    let ids = tokens.iter().map(|token| {
        all &= token.id().is_some();
        token.id().unwrap_or_default()
    });
    let ids = ids.collect();
    let bad = if all { None } else { tokens.iter().position(|token| token.id().is_none()) };
    match bad {
        None => Ok(ids),
        Some(index) => Err(IdentityError::Token { index, value: tokens[index].into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_integer_buffer_gives_the_same_ids() {
        let ids = vec![0u32, 7, 255];
        assert_eq!(token_ids(&[0u8, 7, 255]), Ok(ids.clone()));
        assert_eq!(token_ids(&[0u16, 7, 255]), Ok(ids.clone()));
        assert_eq!(token_ids(&[0u32, 7, 255]), Ok(ids.clone()));
        assert_eq!(token_ids(&[0i32, 7, 255]), Ok(ids.clone()));
        assert_eq!(token_ids(&[0i64, 7, 255]), Ok(ids.clone()));
        assert_eq!(token_ids(&[0u64, 7, 255]), Ok(ids));
        assert_eq!(token_ids::<i64>(&[]), Ok(vec![]));
        assert_eq!(token_ids(&[u64::from(u32::MAX)]), Ok(vec![u32::MAX]));
    }

    #[test]
    fn an_id_that_is_no_u32_is_refused_with_index_and_value() {
        let error = token_ids(&[1i64, 2, -100]).unwrap_err();
        assert_eq!(error, IdentityError::Token { index: 2, value: -100 });
        assert_eq!(error.to_string(), "token_ids[2] is -100: a token id is 0 to 4294967295");
        let error = token_ids(&[1u64 << 32, 5]).unwrap_err();
        assert_eq!(error, IdentityError::Token { index: 0, value: 1 << 32 });
        let error = token_ids(&[3i32, i32::MIN]).unwrap_err();
        assert_eq!(error, IdentityError::Token { index: 1, value: i128::from(i32::MIN) });
    }
}
