package uplink

import (
	"context"
	"net/http"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/sleep"
)

// Usage is what a link needs of the records of what VMs have used.
type Usage interface {
	// Pending are records that the server does not have, the oldest first. taken is called when it has them, with the
	// name of its books: to books of another name all records are pending.
	Pending(limit int) (records []api.Usage, taken func(books string) error, err error)
	// Changed is closed when there is another one.
	Changed() <-chan struct{}
}

// The times of records. They come late without harm: the link itself does not end for them.
const (
	usageBatch = 200
	usageRests = 2 * time.Second // gathers records that end together
	usageRetry = 30 * time.Second
)

// bringUsage brings the server all records that it does not have, and each one that comes, until ctx ends. A record may
// be brought twice, as when the answer is lost: the server knows it by its ID.
func (s *session) bringUsage(ctx context.Context) {
	if s.usage == nil {
		return
	}
	said := ""
	for least := 0; ctx.Err() == nil; {
		changed := s.usage.Changed()
		n, err := s.bringSome(ctx, least)
		if err == nil {
			least = 1 // at first the name of the books is asked for
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if text := err.Error(); text != said {
				said = text
				s.log.Warn("records of usage are not brought to the server, and wait", "error", err)
			}
			_ = sleep.For(ctx, jitter(usageRetry))
		case n == usageBatch:
			said = ""
		default:
			said = ""
			select {
			case <-changed:
				_ = sleep.For(ctx, usageRests)
			case <-ctx.Done():
			}
		}
	}
}

// bringSome brings some records, if there are so many, and returns how many. An older server takes none: they wait for
// its next release.
func (s *session) bringSome(ctx context.Context, least int) (int, error) {
	if s.caller.capability() < fleet.CapabilityUsage {
		return 0, nil
	}
	records, taken, err := s.usage.Pending(usageBatch)
	if err != nil || len(records) < least {
		return 0, err
	}
	var answer fleet.UsageTaken
	_, err = s.ask(ctx, answerTime, http.MethodPost, fleet.RouteUsage, fleet.UsageBatch{Records: records}, &answer)
	if err != nil {
		return 0, err
	}
	if answer.Refused > 0 {
		s.log.Warn("the server refused records of usage: its log says why", "records", answer.Refused)
	}
	if answer.Outside > 0 {
		s.log.Warn("the server took records of usage that count for nobody: `grange usage check` says why", "records",
			answer.Outside)
	}
	return len(records), taken(answer.Books)
}
