package authn

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

// attributeTypes are the names of RFC 4514 and those that grid authorities use beside them.
var attributeTypes = map[string]string{
	"2.5.4.3": "CN", "2.5.4.4": "SN", "2.5.4.5": "SERIALNUMBER", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST",
	"2.5.4.9": "STREET", "2.5.4.10": "O",
	"2.5.4.11": "OU", "2.5.4.12": "TITLE", "2.5.4.17": "POSTALCODE", "2.5.4.42": "GIVENNAME",
	"0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC", "1.2.840.113549.1.9.1": "emailAddress",
}

// subjectOf is the subject of a certificate. It is made from what was signed, never from a text that
// a clever value could break into other parts.
func subjectOf(c *x509.Certificate) (farm.Subject, error) {
	var rdns pkix.RDNSequence
	if rest, err := asn1.Unmarshal(c.RawSubject, &rdns); err != nil || len(rest) > 0 {
		return nil, errors.Join(errors.New("the subject cannot be read"), err)
	}
	var s farm.Subject
	for i := len(rdns) - 1; i >= 0; i-- {
		if len(rdns[i]) != 1 {
			return nil, errors.New("the subject has parts of several attributes")
		}
		a := rdns[i][0]
		value, ok := a.Value.(string)
		kind := attributeTypes[a.Type.String()]
		if kind == "" {
			kind = a.Type.String()
		}
		if !ok || value == "" {
			return nil, fmt.Errorf("the subject's %s is not text", kind)
		}
		s = append(s, farm.NewAttribute(kind, value))
	}
	if len(s) == 0 {
		return nil, errors.New("the certificate has no subject")
	}
	return s, nil
}
