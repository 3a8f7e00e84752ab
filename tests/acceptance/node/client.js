// A client in another language: generated from the protos by Node's gRPC, and nothing of Levada's but those.
//
// node client.js <address> <protos> <common protos>: says what it saw as one line of JSON.
'use strict'

const grpc = require('@grpc/grpc-js')
const loader = require('@grpc/proto-loader')

const [address, protos, common] = process.argv.slice(2)
const options = { includeDirs: [protos, common], keepCase: true, longs: Number, enums: String, oneofs: true, defaults: true }
const load = (...files) => grpc.loadPackageDefinition(loader.loadSync(files, options))
const v1 = load('levada/v1/stream.proto', 'levada/v1/cluster.proto').levada.v1
const errors = loader.loadSync(['google/rpc/status.proto', 'google/rpc/error_details.proto'], options)

const credentials = grpc.credentials.createInsecure()
const streams = new v1.StreamService(address, credentials)
const cluster = new v1.ClusterService(address, credentials)

const call = (client, name, request) =>
  new Promise((resolve, reject) => {
    const deadline = Date.now() + 20000
    client[name](request, { deadline }, (error, answer) => (error ? reject(error) : resolve(answer)))
  })

// The typed details of a refusal.
function refusal (error) {
  const status = errors['google.rpc.Status'].deserialize(error.metadata.get('grpc-status-details-bin')[0])
  const info = status.details.find((each) => each.type_url.endsWith('google.rpc.ErrorInfo'))
  const { reason, domain, metadata } = errors['google.rpc.ErrorInfo'].deserialize(info.value)
  return { code: grpc.status[error.code], message: error.details, reason, domain, metadata }
}

const refused = (promise) =>
  promise.then(
    () => { throw new Error('not refused') },
    (error) => { if (!error.metadata) throw error; return refusal(error) }
  )

function publishStream (requests) {
  return new Promise((resolve, reject) => {
    const answers = []
    const stream = streams.PublishStream()
    stream.on('data', (answer) => answers.push(answer))
    stream.on('error', reject)
    stream.on('end', () => resolve(answers))
    requests.forEach((request) => stream.write(request))
    stream.end()
  })
}

// Read so many records as a member of a group, commit behind the last, and leave.
function subscribe (topic, group, count) {
  return new Promise((resolve, reject) => {
    const values = []
    const member = {}
    const stream = streams.Subscribe()
    stream.on('error', (error) => (error.code === grpc.status.CANCELLED ? resolve({ ...member, values }) : reject(error)))
    stream.on('data', (answer) => {
      if (answer.kind === 'assigned') member.partitions = answer.assigned.partitions.map((each) => each.partition)
      if (answer.kind === 'records') {
        values.push(...answer.records.records.map((each) => each.value.toString()))
        if (values.length === count) {
          const offsets = [{ topic, partition: answer.records.partition, offset: answer.records.next_offset }]
          stream.write({ commit: { id: 9, offsets } })
        }
      }
      if (answer.kind === 'committed') {
        member.committed = { id: answer.committed.id, errors: answer.committed.errors.length }
        stream.cancel()
      }
    })
    stream.write({ open: { topics: [topic], group, client_id: 'node' } })
  })
}

async function main () {
  const said = {}
  const created = await call(streams, 'CreateTopic', { name: 'from-node', partitions: 3 })
  said.created = { outcome: created.outcome, partitions: created.topic.partitions, router: created.topic.router }
  const records = ['user-123', 'user-456', 'user-123'].map((key, place) => ({
    key: Buffer.from(key), value: Buffer.from(`v${place}`), headers: [{ key: 'h', value: Buffer.from('1') }]
  }))
  const published = await call(streams, 'Publish', { topic: 'from-node', records })
  said.published = published.positions.map((each) => [each.partition, each.offset])
  const answers = await publishStream([
    { id: 1, topic: 'from-node', records: [{ value: Buffer.from('s1'), partition: 1 }] },
    { id: 2, topic: 'nope', records: [{ value: Buffer.from('s2') }] },
    { id: 3, topic: 'from-node', records: [{ value: Buffer.from('s3'), partition: 1 }] }
  ])
  said.streamed = answers.map((each) => [each.id, each.error ? each.error.reason : each.positions[0].offset])
  const read = await call(streams, 'Read', { topic: 'from-node', partition: 1, offset: 1, limit: 2 })
  said.read = read.records.map((each) => [each.offset, each.value.toString(), each.headers.length])
  said.subscribed = await subscribe('from-node', 'node-group', 5)
  said.shrink = await refused(call(streams, 'CreateTopic', { name: 'from-node', partitions: 2 }))
  said.range = await refused(call(streams, 'Read', { topic: 'from-node', partition: 1, offset: 99 }))
  const { leader } = await call(cluster, 'GetLeader', {})
  said.leader = [leader.id, leader.self]
  console.log(JSON.stringify(said))
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1) })
