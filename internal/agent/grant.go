package agent

import (
	"net/http"

	"github.com/grange-project/grange/api"
)

// getGrant tells a batch system's wrapper what its job would get.
func (a *Agent) getGrant(w http.ResponseWriter, r *http.Request, c Caller) error {
	s := a.config().DefaultShape
	return answer(w, api.Grant{Batch: string(c.Batch.System), BatchJob: c.Batch.Job, CPUs: c.CPUs.String(), Slots: s.CPUs,
		Memory: uint64(s.Memory), Image: a.config().DefaultImage})
}
