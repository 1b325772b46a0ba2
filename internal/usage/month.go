package usage

import (
	"fmt"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

const monthLayout = "2006-01"

// MonthOf is the month of a time, in UTC, as 2026-10.
func MonthOf(at time.Time) string { return at.UTC().Format(monthLayout) }

// Month is the month that a record is of: that of its end. An interval of a VM that goes on is cut when its day is
// over, which is a moment later at best: it is of the month in which its middle lies.
func Month(u api.Usage) string {
	at := u.End
	if u.Ended == api.EndedCut {
		at = u.Start.Add(u.End.Sub(u.Start) / 2)
	}
	return MonthOf(at)
}

// ParseMonth checks a month.
func ParseMonth(text string) (time.Time, error) {
	at, err := time.Parse(monthLayout, text)
	if err != nil || at.Year() < 2000 {
		return at, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
			Message: fmt.Sprintf("invalid month %q", text), Hint: "write it as 2026-10"}
	}
	return at, nil
}

// Next is the month behind one.
func Next(month string) string {
	at, err := time.Parse(monthLayout, month)
	if err != nil {
		return month
	}
	return MonthOf(at.AddDate(0, 1, 0))
}

// Counts is the month in which a record of a month counts, where all up to closed are closed; "": none is.
func Counts(month, closed string) (in string, late bool) {
	if closed == "" || month > closed {
		return month, false
	}
	return Next(closed), true
}

// Months reads a span of months, both included: the present one where nothing is said.
func Months(from, to string, now time.Time) (first, last string, err error) {
	first, last = from, to
	switch {
	case from == "" && to == "":
		first, last = MonthOf(now), MonthOf(now)
	case from == "":
		first = to
	case to == "":
		last = max(MonthOf(now), from)
	}
	for _, m := range []string{first, last} {
		if _, err := ParseMonth(m); err != nil {
			return "", "", err
		}
	}
	if last < first {
		return "", "", &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
			Message: fmt.Sprintf("no month is from %s to %s", first, last), Hint: "name the earlier month first"}
	}
	return first, last, nil
}
