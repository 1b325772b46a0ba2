package agent

import (
	"strings"
	"time"

	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/sleep"
)

// awaitMinimum lets no VM begin while a resource of the host is below its minimum: a full disk breaks the VMs that run,
// and the next one first. A batch job is refused at once, for its batch system has other hosts; others wait, unless
// they said that they would not.
func (v *making) awaitMinimum() error {
	for {
		short := v.agent.machines.Short()
		if len(short) == 0 {
			return nil
		}
		err := &farm.Error{Kind: farm.NoCapacity, Code: machine.CodeBelowMinimum,
			Message: "the host takes no more VMs: " + strings.Join(short, "; "),
			Hint:    "free what is short, or see [minimum] in the agent's configuration"}
		if v.request.NoWait || v.record.Caller.Batch.System != "" {
			return err
		}
		v.publishWaiting(err.Error())
		if err := sleep.For(v.ctx, minimumPause); err != nil {
			return err
		}
	}
}

const minimumPause = time.Second
