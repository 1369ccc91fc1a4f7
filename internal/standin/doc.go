// Package standin is what package ledgertest is made of, less what needs the ledger: tests
// of the ledger itself use it too. See there.
package standin
