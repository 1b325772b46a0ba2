package fleet

import "time"

// MaxHistory is how far back a server remembers.
const MaxHistory = 120 * 24 * time.Hour

// History is what the fleet was like: values at equal steps, the first one at From. A server keeps the last hours by
// the minute, a week by ten minutes, and four months by two hours.
type History struct {
	Step   float64         `json:"step" doc:"seconds between two values"`
	From   time.Time       `json:"from" doc:"of the first value"`
	Names  []string        `json:"names" doc:"of all series that there are"`
	Series []HistorySeries `json:"series" doc:"those that were asked for"`
}

// HistorySeries is one of them.
type HistorySeries struct {
	Name   string     `json:"name"`
	Values []*float64 `json:"values" doc:"the mean of each step; null: nothing is known of it"`
}
