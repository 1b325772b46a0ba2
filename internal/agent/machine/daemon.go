package machine

import (
	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/hyper"
)

// DaemonView is how the hypervisor's daemon does, for people.
func DaemonView(d hyper.Daemon) api.Hypervisor {
	v := api.Hypervisor{Away: d.Away, AnswerMilliseconds: float64(d.Answer.Microseconds()) / 1000, Slow: d.Slow}
	if d.Away != "" {
		v.Since = &d.Since
	}
	for _, s := range d.Stuck {
		v.Stuck = append(v.Stuck, api.StuckVM{ID: s.ID, Name: s.Name, Reason: s.Reason, Since: s.Since,
			Attempts: s.Attempts})
	}
	return v
}
