package broker

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/server/action"
)

// How often a batch system is asked what waits, and how often all hosts of the cell are told again to have an image
// that jobs still wait for: some may have joined, or removed it.
const (
	stageEvery = time.Minute
	stageAgain = time.Hour
)

// stagedAtMost is how many images are looked up: users write their names, any number of them.
const stagedAtMost = 100

// mostWanted returns the images that most jobs wait for, those first.
func mostWanted(waiting []batch.Demand) []string {
	jobs := map[string]int{}
	for _, d := range waiting {
		if d.Image != "" {
			jobs[d.Image] += d.Jobs
		}
	}
	images := slices.SortedFunc(maps.Keys(jobs),
		func(a, b string) int { return cmp.Or(cmp.Compare(jobs[b], jobs[a]), cmp.Compare(a, b)) })
	return images[:min(len(images), stagedAtMost)]
}

// staged is an image that hosts of a cell were told to have, or could not be.
type staged struct {
	digest, refusal string
	at              time.Time
}

// stage has the hosts of the cell fetch the images that jobs wait for, before they start. An image that the catalogue
// does not have is the hosts' own, or the job's mistake.
func (b *brokerPass) stage(ctx context.Context) error {
	now := b.Now()
	if b.Stage == nil || len(b.hosts) == 0 || now.Sub(b.memory.demanded) < stageEvery {
		return nil
	}
	b.memory.demanded = now
	waiting, err := b.system.Demand(ctx)
	if err != nil {
		return err
	}
	wanted := mostWanted(waiting)
	maps.DeleteFunc(b.memory.staged, func(image string, _ staged) bool { return !slices.Contains(wanted, image) })
	for _, image := range wanted {
		was := b.memory.staged[image]
		if now.Sub(was.at) >= stageAgain {
			was = staged{at: now}
		}
		is := staged{at: was.at}
		digest, err := b.Stage(ctx, b.epoch, b.cell.Name, image, was.digest)
		switch {
		case err == nil:
			is.digest = digest // else it is tried again in a minute
		case !ofOne(err):
			return err
		case !action.Missing(err):
			is.refusal = err.Error()
		}
		if is.refusal != was.refusal && is.refusal != "" {
			b.Log.Warn("image that jobs wait for", "cell", b.cell.Name, "image", image, "error", is.refusal)
		}
		b.memory.staged[image] = is
	}
	return nil
}
