package pages

import (
	"net/url"
	"time"
)

// period is how far back a page looks, and the choice of it in a form.
type period struct {
	Of      string // what of: "Changes"
	Chosen  string // name of one of periods; "": any time
	AnyTime bool   // is a choice
	age     time.Duration
}

// periods are those that one can choose.
var periods = []struct {
	Name, Title string
	age         time.Duration
}{{"day", "a day", 24 * time.Hour}, {"week", "a week", 7 * 24 * time.Hour}, {"month", "30 days", 30 * 24 * time.Hour}}

// periodOf is the period that is asked for, or else the one that otherwise names.
func periodOf(q url.Values, of, otherwise string) period {
	for _, name := range []string{q.Get("since"), otherwise} {
		for _, p := range periods {
			if p.Name == name {
				return period{of, name, otherwise == "", p.age}
			}
		}
	}
	return period{Of: of, AnyTime: true}
}

// from is when the period began; zero: any time.
func (p period) from(now time.Time) time.Time {
	if p.age == 0 {
		return time.Time{}
	}
	return now.Add(-p.age)
}
