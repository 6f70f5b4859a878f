//! Checks what hours and energy cost. The bill of a run reads it from the scenario itself (`python/windtunnel/bill.py`): no time
//! depends on it.

use windtunnel_plan::error::InputError;

use crate::schema::Prices;

/// # Errors
/// [`InputError`] for a span of years that is not above 0, and for what is bought where a rent is given.
pub(super) fn check(prices: &Prices, source: &str) -> Result<(), InputError> {
    let at = |key: &str| format!("{source}: prices.{key}");
    if let Some(years) = prices.years
        && !(years > 0.0 && years <= 100.0)
    {
        return Err(InputError::new(
            at("years"),
            format!("expected years above 0 and at most 100, found {years}"),
        ));
    }
    if prices.gpu_hour.is_some() && (prices.kwh.is_some() || prices.years.is_some()) {
        let other = if prices.kwh.is_some() { "kwh" } else { "years" };
        let found = format!(
            "`gpu_hour` is a rent for everything, and `{other}` of what is bought: expected one of them"
        );
        return Err(InputError::new(at(other), found));
    }
    Ok(())
}
