package usage

import (
	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/batch"
)

// Outcome is how a job ended, in a word.
type Outcome string

// Outcomes.
const (
	Done      Outcome = "done"
	Failed    Outcome = "failed"
	Cancelled Outcome = "cancelled"
	Lost      Outcome = "lost" // with its host, or nobody was there to see how
)

// Outcomes are all of them.
func Outcomes() []Outcome { return []Outcome{Done, Failed, Cancelled, Lost} }

// OutcomeOf is that of a record, by what it says of its end.
func OutcomeOf(u api.Usage) Outcome {
	switch u.Ended {
	case "exit:0", api.EndedLeft, api.EndedStopped, api.EndedMoved, api.EndedCut:
		return Done
	case api.EndedUnseen, api.EndedHostBooted, string(batch.OutcomeNode), "":
		return Lost
	case string(batch.OutcomeCancelled):
		return Cancelled
	}
	return Failed // exit:1, signal:9, a code of an error
}
