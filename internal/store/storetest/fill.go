package storetest

import (
	"errors"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// Fill writes one of everything that a farm may hold, with all its fields.
func Fill(tx *store.Tx) error {
	return errors.Join(
		tx.InsertVM(aVM(1)), tx.InsertHost(aHost(1)),
		tx.PutCell(aCell()), tx.PutProject(aProject()), tx.PutShape(aShape("small")), tx.PutNetwork(aNetwork()),
		tx.PutGroup(farm.ServerGroup{Project: "p", Name: "apart", Affinity: farm.Apart}),
		tx.PutUser(farm.User{Name: "ann", Subjects: []string{"CN=Ann,O=Grid,C=CH"}, Disabled: true}),
		tx.PutGrant(farm.Grant{User: "ann", Role: farm.RoleOperator, Project: "p"}),
		tx.InsertSession(aSession("s9", "ben")), tx.PutToken(aToken()), tx.PutJoinToken(aJoinToken()),
		tx.PutStream(store.Stream{ID: "s1", Host: "h1", VM: "id", Kind: "tcp", Port: 22, Server: "https://a",
			Created: noon}),
		tx.PutSetting("ca", []byte(`{"a":1}`)),
		store.ImagesOf(tx).Put(anImage()), store.ImagesOf(tx).PutName(anImageName()),
		store.ImagesOf(tx).PutOrder(anImageOrder()), store.ImagesOf(tx).PutTask(anImageTask()),
		tx.Audit(farm.Entry{Time: noon, Who: "ann", Means: "token", Source: "t1", Action: "vm.create", Target: "p/a",
			Project: "p", Outcome: "denied", Reason: "quota"}),
		tx.PutAnswer("ann", "k", []byte{0, 1}, []byte{2, 255}, noon),
		fillIncident(tx),
	)
}

func fillIncident(tx *store.Tx) error {
	id, err := tx.InsertIncident(anIncident())
	if err != nil {
		return err
	}
	return tx.AddIncidentEntry(id, anEntry(1))
}
