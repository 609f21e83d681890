// A producer or a reader on kafkajs, as docs/clients.md asks: it prints what it does as JSON lines.
const fs = require('fs')
const readline = require('readline')
const zlib = require('zlib')
const { Kafka, logLevel } = require('kafkajs')

const settings = JSON.parse(process.argv[2])
const batchMs = 20

let lines = ''
function tell (event, fields = {}) {
  // CLOCK_MONOTONIC in ns does not fit into a JavaScript number for ever: write its digits
  lines += `{"e":"${event}","t":${process.hrtime.bigint()},${JSON.stringify(fields).slice(1)}\n`.replace(',}', '}')
}
function flush () {
  let text = Buffer.from(lines)
  lines = ''
  while (text.length) text = text.subarray(fs.writeSync(1, text))
}
function fail (error) {
  flush()
  console.error(error)
  process.exit(1)
}

const kafka = new Kafka({
  clientId: settings.config['client.id'],
  brokers: settings.bootstrap.split(','),
  logLevel: logLevel.ERROR,
  retry: { retries: 20, initialRetryTime: 50, maxRetryTime: 500 }
})
let stopping = false
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

// A record's value is the partition's template, with the number of the attempt and the checksum of all before it.
function valueOf (template, number) {
  const value = Buffer.from(template)
  value.writeBigInt64BE(BigInt(number), 16)
  value.writeUInt32LE(zlib.crc32(value.subarray(0, -4)), value.length - 4)
  return value
}

async function produce () {
  const acks = settings.config.acks === 'all' ? -1 : Number(settings.config.acks)
  const partitions = settings.partitions.map(one => ({ ...one, value: Buffer.from(one.value, 'base64') }))
  const producer = kafka.producer({
    allowAutoTopicCreation: false,
    createPartitioner: () => ({ message }) => message.partition
  })
  await producer.connect()
  tell('started', { client: 'kafkajs', acks: settings.config.acks })
  flush()
  const began = Date.now()
  const rate = settings.rate ?? 5000
  let number = 0
  const open = new Set()
  while (!stopping) {
    const due = Math.min(Math.floor((Date.now() - began) * rate / 1000) - number, 1000)
    const batches = new Map()
    for (let i = 0; i < due; i++, number++) {
      const { topic, partition, value } = partitions[number % partitions.length]
      tell('attempt', { n: number, topic, p: partition })
      const batch = batches.get(`${topic}/${partition}`) ?? { topic, numbers: [], messages: [] }
      batches.set(`${topic}/${partition}`, batch)
      batch.numbers.push(number)
      batch.messages.push({ partition, value: valueOf(value, number) })
    }
    flush() // all attempts are told before the first is sent
    for (const { topic, numbers, messages } of batches.values()) {
      const sent = producer.send({ topic, acks, messages, timeout: 30000 }).then(
        ([answer]) => numbers.forEach((n, i) => tell('result', { n, o: acks ? Number(answer.baseOffset) + i : -1 })),
        error => numbers.forEach(n => tell('result', { n, x: error.name }))
      ).finally(() => open.delete(sent))
      open.add(sent)
    }
    while (open.size > 100) await Promise.race(open)
    await sleep(batchMs)
  }
  tell('stopping')
  await Promise.all(open)
  flush()
  await producer.disconnect()
}

async function read () {
  const consumer = kafka.consumer({
    groupId: settings.group,
    readUncommitted: settings.isolation !== 'read_committed',
    maxWaitTimeInMs: 100
  })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    const places = Object.entries(payload.memberAssignment).flatMap(([topic, all]) => all.map(p => [topic, p]))
    tell('assigned', { m: payload.memberId, ps: places })
    flush()
  })
  consumer.on(consumer.events.CRASH, ({ payload }) => { if (!payload.restart) fail(payload.error) })
  await consumer.connect()
  await consumer.subscribe({ topics: [...new Set(settings.partitions.map(one => one.topic))], fromBeginning: true })
  tell('started', { client: 'kafkajs' })
  flush()
  let last = Date.now()
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, heartbeat }) => {
      for (const { offset, value, timestamp } of batch.messages) {
        const told = { topic: batch.topic, p: batch.partition, o: Number(offset), ts: Number(timestamp) }
        tell('delivered', { ...told, v: value.toString('base64') })
      }
      flush()
      last = Date.now()
      await heartbeat()
    }
  })
  while (!stopping || Date.now() - last < 500) await sleep(batchMs) // what is there is still read
  tell('stopping')
  await consumer.disconnect()
}

const stop = () => { stopping = true }
readline.createInterface({ input: process.stdin })
  .on('line', line => { if (line === 'stop') stop() })
  .on('close', () => process.exit(4)) // the harness is gone
process.on('SIGTERM', stop)
const work = settings.role === 'producer' ? produce : read
work().then(() => { tell('closed'); flush(); process.exit(0) }, fail)
