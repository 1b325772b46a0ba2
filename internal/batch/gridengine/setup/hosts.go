package setup

import (
	"context"
	"fmt"

	"github.com/grange-project/grange/internal/batch/gridengine"
	"github.com/grange-project/grange/internal/farm"
)

// NewHost is an execution host that joins or leaves a cell.
type NewHost struct {
	Name  string
	Queue string
	Group string // host group of the queue, as @allhosts
	Slots int
}

// AddHost makes a host an execution host of the queue. Steps that were taken before are no error, so that a call that
// was cut short can be repeated. The last step is what lets jobs in.
func AddHost(ctx context.Context, c *gridengine.Cell, h NewHost) error {
	if _, err := c.Qconf(ctx, "-ah", h.Name); err != nil && !farm.IsCode(err, farm.CodeQconf) {
		return err
	}
	object := fmt.Sprintf("hostname %s\nload_scaling NONE\ncomplex_values NONE\nuser_lists NONE\nxuser_lists "+
		"NONE\nprojects NONE\nxprojects NONE\nusage_scaling NONE\nreport_variables NONE\n", h.Name)
	if err := c.QconfFile(ctx, "host", object, "-Ae"); err != nil && !farm.IsCode(err, farm.CodeQconf) {
		return err
	}
	if _, err := c.Qconf(ctx, "-aattr", "queue", "slots", fmt.Sprintf("[%s=%d]", h.Name, h.Slots),
		h.Queue); err != nil {
		return err
	}
	_, err := c.Qconf(ctx, "-aattr", "hostgroup", "hostlist", h.Name, h.Group)
	return err
}

// RemoveHost takes a host out of the queue and the cell. Jobs that run there keep it in the cell: then it is Conflict,
// no new jobs come, and the call is to be repeated when they have ended.
func RemoveHost(ctx context.Context, c *gridengine.Cell, h NewHost) error {
	steps := [][]string{
		{"-dattr", "hostgroup", "hostlist", h.Name, h.Group},
		{"-purge", "queue", "slots", h.Queue + "@" + h.Name},
		{"-de", h.Name},
		{"-dconf", h.Name},
		{"-dh", h.Name},
	}
	for _, step := range steps {
		if _, err := c.Qconf(ctx, step...); err != nil && !farm.IsCode(err, farm.CodeQconf) {
			return err
		}
	}
	left, err := c.Qconf(ctx, "-sel")
	if err != nil {
		return err
	}
	for _, name := range firstWords(left) {
		if name == h.Name {
			_, err := c.Qconf(ctx, "-de", h.Name)
			if err == nil {
				return nil
			}
			return fmt.Errorf("host %s stays in the cell: %w", h.Name, err)
		}
	}
	return nil
}
